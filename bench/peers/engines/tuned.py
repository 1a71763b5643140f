"""Spark Structured Streaming as one tunes it by hand on two cores: two partitions, a log of updates, plain renames.

Appended exactly once by txnAppId and txnVersion; in its table the newest row of a window wins.
`python -m bench.peers.engines.tuned BOOTSTRAP TOPIC KEY FOLDER` drains the topic.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from bench.peers.engines.engine import Command, Work, started_at
from bench.peers.meter import Cost
from tally.base.settings import REPO

STREAMING = "org.apache.spark.sql.execution.streaming"
CONF = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.streaming.stateStore.providerClass": f"{STREAMING}.state.HDFSBackedStateStoreProvider",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.databricks.delta.snapshotPartitions": "1",
}
MOST = 500_000  # records a micro-batch, as Tally's default


class Tuned:
    """The job below, as an engine."""

    name = "spark-tuned"

    def drain(self, work: Work) -> Command:
        words = [sys.executable, "-m", __name__, work.bootstrap, work.topic, work.key, str(work.folder)]
        return Command(words=words)

    def rows(self, work: Work) -> pa.Table:
        written = DeltaTable(work.folder / "table").to_pyarrow_table()  # noqa: F841
        return duckdb.sql(
            'SELECT epoch_ms("start")::BIGINT AS w, k, max(n) AS n, arg_max(amount, n) AS amount '
            "FROM written GROUP BY ALL"
        ).to_arrow_table()

    def up_at(self, work: Work, cost: Cost) -> float:
        return started_at(cost)

    def commits(self, work: Work) -> Path:
        return work.folder / "table" / "_delta_log"


def main() -> None:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F

    bootstrap, topic, key, folder = sys.argv[1:5]
    table = f"{folder}/table"
    jars = os.pathsep.join(str(jar) for jar in sorted((REPO / ".jars" / "spark").glob("*.jar")))
    builder = SparkSession.builder.appName("tuned").master("local[2]").config("spark.driver.extraClassPath", jars)
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    columns = "start timestamp, end timestamp, k int, n long, amount double"
    spark.sql(f"CREATE TABLE delta.`{table}` ({columns}) USING delta TBLPROPERTIES('delta.checkpointInterval'='100')")
    print("@start", flush=True)
    read = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", MOST)
        .option("kafka.max.poll.records", 10_000)
        .option("kafka.max.partition.fetch.bytes", 4 << 20)
        .load()
    )
    rides = read.select(F.from_json(F.col("value").cast("string"), f"{key} int, amount double, ts long").alias("e"))
    timed = rides.select(F.col(f"e.{key}").alias("k"), "e.amount", F.timestamp_millis("e.ts").alias("ts"))
    found = (
        timed.withWatermark("ts", "10 minutes")
        .groupBy(F.window("ts", "1 minute"), "k")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
        .select("window.start", "window.end", "k", "n", "amount")
    )

    def append(rows: DataFrame, batch: int) -> None:
        once = {"txnAppId": "tuned", "txnVersion": str(batch)}
        rows.write.format("delta").mode("append").options(**once).save(table)

    writer = found.writeStream.foreachBatch(append).outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    query.awaitTermination()
    print("@end", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
