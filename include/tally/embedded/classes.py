"""`python -m tally.embedded.classes spark|kafka`: an archive of parsed classes; each JVM starts in half the time.

Spark's holds what a short life of a job and of a stream loads, the broker's what it loads until it answers. A JVM whose
class path is another passes it over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 600.0  # seconds, on a machine that is busy with much else


def make() -> Path:
    """Write Spark's archive anew, whole or not at all."""
    from tally.base.settings import settings
    from tally.lake.session import class_archive, session

    target = class_archive(settings())
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="tally-classes-") as home:
        os.environ.update(
            TALLY_HOME=home,
            TALLY_JAVA_OPTIONS=f"-XX:ArchiveClassesAtExit={draft} -Xlog:cds=off -Xlog:cds+dynamic=off",
        )
        spark = session("tally-classes")
        try:
            exercise(spark, Path(home))
        finally:
            end(spark)
    draft.replace(target)
    return target


def exercise(spark: SparkSession, home: Path) -> None:
    """Write, replace and read a Delta table, call Python, aggregate a stream: the classes of everyday work."""
    from pyspark.sql import functions as F

    table = str(home / "table")
    rows = spark.range(100).select(F.timestamp_millis(F.col("id") * 60_000).alias("at"), (F.col("id") % 7).alias("key"))
    for _ in range(2):
        rows.withColumn("day", F.to_date("at")).write.format("delta").mode("append").partitionBy("day").save(table)
    known = spark.read.format("delta").option("versionAsOf", 1).load(table).where("at >= TIMESTAMP'1970-01-01'")
    minutes = known.groupBy(F.window("at", "1 minute"), "key").agg(F.count("*").alias("n"), F.max("at").alias("last"))
    minutes.join(known.select("key").distinct(), "key", "left").orderBy("key").collect()
    known.mapInPandas(lambda frames: frames, known.schema).count()
    (known.write.format("delta").mode("overwrite").option("replaceWhere", "day = DATE'1970-01-01'").save(table))
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.util.Utils.classForName("org.apache.spark.sql.kafka010.KafkaSourceProvider", True, False)
    jvm.org.apache.spark.util.Utils.classForName("org.apache.kafka.clients.consumer.KafkaConsumer", True, False)

    def append(batch: DataFrame, _: int) -> None:
        batch.write.format("delta").mode("append").save(str(home / "streamed"))

    # Files, and each once: of a source that goes on, a busy machine never has all.
    rows.write.parquet(str(home / "files"))
    timed = spark.readStream.schema(rows.schema).parquet(str(home / "files")).withWatermark("at", "1 minute")
    counted = timed.groupBy(F.window("at", "1 minute").alias("window")).count().select("window.start", "count")
    query = (
        counted.writeStream.foreachBatch(append)
        .outputMode("update")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def end(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM, which writes the archive as its last act."""
    import psutil

    process = psutil.Process(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    if gateway.proc.stdin:
        gateway.proc.stdin.close()  # the JVM lives as long as somebody may write to it
    process.wait(PATIENCE)


def make_of_broker() -> Path:
    """Write the broker's archive anew, whole or not at all."""
    from tally.base.settings import settings
    from tally.embedded import broker_files as files

    target = files.class_archive(settings())
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    target.unlink(missing_ok=True)
    options = f"-XX:ArchiveClassesAtExit={draft} -Xlog:cds=off -Xlog:cds+dynamic=off"
    conf = settings().model_copy(update={"kafka_java_options": options})
    with tempfile.TemporaryDirectory(prefix="tally-classes-") as home:
        folder, port = Path(home, "kafka"), files.free_port()
        files.write_configuration(conf, folder, port=port, controller_port=files.free_port(), log=Path(home, "log"))
        files.format_storage(conf, folder)
        with subprocess.Popen(files.broker_command(conf, folder)) as broker:
            try:
                use(f"127.0.0.1:{port}")
            finally:
                broker.terminate()
                broker.wait(PATIENCE)  # it writes the archive as its last act
    draft.replace(target)
    return target


def use(bootstrap: str) -> None:
    """Make a topic, and write to it, in a transaction too."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.list_topics(timeout=PATIENCE)
    admin.create_topics([NewTopic("classes", 1, 1)])["classes"].result(PATIENCE)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "classes", "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("classes", b"{}")
    producer.commit_transaction(PATIENCE)


if __name__ == "__main__":
    print({"spark": make, "kafka": make_of_broker}[sys.argv[1]]())
    sys.exit(0)
