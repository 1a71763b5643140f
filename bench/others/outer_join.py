"""The rows of some windows that differ between two Delta tables by a full outer join in Spark.

outer_join SPEED BATCH FROM TO
"""

from __future__ import annotations

import json
import sys

from bench.others.plain_spark import session

KEY = ["window_start", "window_end", "shop"]


def main(speed: str, batch: str, start: str, end: str) -> None:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    spark = session()
    asked = f"window_start >= TIMESTAMP'{start}' AND window_start < TIMESTAMP'{end}'"
    newest = F.row_number().over(Window.partitionBy(*KEY).orderBy(F.desc("_batch")))
    written = spark.read.format("delta").load(speed).where(asked).withColumn("_newest", newest).where("_newest = 1")
    one, other = written.alias("s"), spark.read.format("delta").load(batch).where(asked).alias("b")
    near = "s.n = b.n AND abs(s.total - b.total) <= 1e-9 * abs(b.total)"
    differ = one.join(other, KEY, "full_outer").where(f"NOT coalesce({near}, false)")
    found = [(int(row["window_start"].timestamp()), row["shop"]) for row in differ.select(*KEY).collect()]
    print(json.dumps({"differ": sorted(found)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
