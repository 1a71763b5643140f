"""The same windows by a Spark batch straight from Kafka. kafka_batch BOOTSTRAP TOPIC OUT"""

from __future__ import annotations

import json
import sys

from bench.others.plain_spark import session

SCHEMA = "id BIGINT, shop INT, amount DOUBLE, at BIGINT"


def main(bootstrap: str, topic: str, out: str) -> None:
    from pyspark.sql import functions as F

    spark = session()
    raw = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    events = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e")).select("e.*")
    once = events.withColumn("at", F.timestamp_millis("at")).dropDuplicates(["id"])  # a user's batch has no lateness
    rows = once.groupBy(F.window("at", "1 minute").alias("w"), "shop").agg(
        F.count("*").alias("n"), F.sum("amount").alias("total")
    )
    rows.select(F.col("w.start").alias("window_start"), "shop", "n", "total").write.parquet(out)
    print(json.dumps({}))


if __name__ == "__main__":
    main(*sys.argv[1:])
