"""A plain Spark job as its documentation writes one: Kafka, from_json, a watermark, a window, merged into Delta.

plain_job.py BOOTSTRAP TOPIC TABLE CHECKPOINT WAY: `merge` upserts each micro-batch, `append` has Delta's own sink take
closed windows, `append in foreachBatch` appends them by hand. It has nothing of Tally's but the jars.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.settings import settings
from tally.lake.session import spark_conf

SCHEMA = "id BIGINT, shop INT, amount DOUBLE, at TIMESTAMP"


def main() -> None:
    bootstrap, topic, table, checkpoint, way = sys.argv[1:]
    run = settings()
    builder = SparkSession.builder.master(run.spark_master).appName("plain")
    for name, value in spark_conf(run, run.stream_memory).items():
        if "checkpointFileManager" not in name:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    # Times are epoch milliseconds on the wire: the documentation's from_json would read them as seconds.
    wire = SCHEMA.replace("at TIMESTAMP", "at BIGINT")
    events = raw.select(F.from_json(F.col("value").cast("string"), wire).alias("e")).select("e.*")
    counted = (
        events.withColumn("at", F.timestamp_millis("at"))
        .withWatermark("at", "2 minutes")
        .groupBy(F.window("at", "1 minute"), "shop")
        .agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
        .select(F.col("window.start").alias("start"), F.col("window.end").alias("end"), "shop", "n", "total")
    )
    writer = counted.writeStream.option("checkpointLocation", checkpoint).trigger(processingTime="0.2 seconds")
    if way == "merge":
        query = writer.outputMode("update").foreachBatch(merge(table)).start()
    elif way == "append":
        query = writer.outputMode("append").format("delta").start(table)
    else:
        query = writer.outputMode("append").foreachBatch(append(table)).start()
    query.awaitTermination()


def append(path: str):  # type: ignore[no-untyped-def]
    """The documentation's example of foreachBatch: write the batch."""

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.format("delta").mode("append").save(path)

    return write


def merge(path: str):  # type: ignore[no-untyped-def]
    """The documentation's upsert in foreachBatch."""
    from delta.tables import DeltaTable

    def upsert(rows: DataFrame, batch: int) -> None:
        spark = rows.sparkSession
        if not DeltaTable.isDeltaTable(spark, path):
            rows.limit(0).write.format("delta").save(path)
        same = "t.start = s.start AND t.shop = s.shop"
        target = DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), same)
        target.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    return upsert


if __name__ == "__main__":
    main()
