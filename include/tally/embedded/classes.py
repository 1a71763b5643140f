"""`python -m tally.embedded.classes`: an archive of Spark's parsed classes, so that each JVM starts in half the time.

It holds what a short life of a job and of a stream loads. A JVM whose class path is another passes it over.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATIENCE = 120.0


def make() -> Path:
    """Write the archive anew, whole or not at all."""
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

    timed = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    counted = timed.groupBy(F.window("timestamp", "1 minute").alias("window")).count().select("window.start", "count")
    query = (
        counted.writeStream.foreachBatch(append)
        .outputMode("update")
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    query.stop()


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


if __name__ == "__main__":
    print(make())
    sys.exit(0)
