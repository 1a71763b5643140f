"""What a micro-batch costs before it runs: the parts of pipelines planned over a small frame, and their finish."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.declare import pipeline, topic, tumbling
from tally.catalog.spec import Pipeline
from tally.kinds import kind_of
from tally.lake.session import session
from tally.parts import Function, Split

RIDES = topic("rides", schema="id BIGINT, zone INT, cents BIGINT, fare DOUBLE, at TIMESTAMP", event_time="at",
              lateness="1 minute", unique="id")  # fmt: skip
MOST, WARM, TURNS = 16, 10, 30


def measure(_: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a turn, least and median: of 1 pipeline, and of 16 distinct ones together."""
    spark = session("tally-bench", memory="1g")
    declared = [of(at) for at in range(MOST)]
    began = time.perf_counter()
    splits = [Function(spark, one).in_two for one in declared]
    found: dict[str, Any] = {"split_ms_each": round((time.perf_counter() - began) * 1000 / MOST, 1)}
    rows = spark.range(10).selectExpr("id", "int(id) zone", "id cents", "double(id) fare", "timestamp_seconds(id) at")
    (frame,) = kind_of(declared[0]).bounded([rows])
    for count in (1, MOST):
        known = [one for one in splits[:count] if isinstance(one, Split)]
        assert len(known) == count
        found[f"of_{count}"] = {
            "parts_ms": taken(lambda known=known: [one.parts(frame) for one in known]),
            "function_again_ms": taken(lambda count=count: [one.function(frame) for one in declared[:count]]),
            "parts_planned_ms": taken(lambda known=known: [planned(one.parts(frame)) for one in known]),
            "added_and_finished_ms": taken(lambda known=known: [finished(spark, one) for one in known]),
        }
    spark.stop()
    return found


def of(number: int) -> Pipeline:
    """One of sixteen functions of which no two are alike."""

    @pipeline(reads=RIDES, window=tumbling("1 minute"), key="zone")
    def rows(rides: DataFrame) -> DataFrame:
        kept = rides.where(F.col("cents") > number).withColumn("more", F.col("fare") * (number + 1))
        measures = [F.count("*").alias("n"), F.sum("cents").alias("cents"), F.avg("more").alias("mean"),
                    F.max("fare").alias("most"), F.count_if(F.col("fare") > number).alias("many")]  # fmt: skip
        return kept.groupBy("window", "zone").agg(*measures[: 3 + number % 3]).withColumn("at_least", F.lit(number))

    return rows


def planned(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().executedPlan()


def finished(spark: SparkSession, split: Split) -> DataFrame:
    return split.finished(split.added(spark.createDataFrame([], split.schema)))


def taken(act: Callable[[], Any]) -> dict[str, float]:
    """The least and the median of some turns in a JVM that has done it before."""
    for _ in range(WARM):
        act()
    return told([timed(act) for _ in range(TURNS)])


def timed(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def told(times: Sequence[float]) -> dict[str, float]:
    return {"least": round(min(times), 1), "median": round(statistics.median(times), 1)}
