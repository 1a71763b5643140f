"""Which events a function leaves out before it aggregates: they are in no window, so no layer differs by them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.spec import Pipeline
from tally.kinds import kind_of

PLACE = ("_partition", "_offset")


def filters(spark: SparkSession, pipeline: Pipeline) -> bool:
    """Whether the function has a filter of its own between its one topic and its aggregation."""
    kind = kind_of(pipeline)
    if not kind.by_event:
        return False
    (given,) = kind.empty(spark)
    before = before_aggregation(pipeline.function(given))
    return before is not None and names(before).count("Filter") > names(analyzed(given)).count("Filter")


def with_filtered(events: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Events with `_filtered`; where the function drops the columns that tell an event, none is said to be."""
    (given,) = kind_of(pipeline).bounded([events.select(*pipeline.reads[0].columns, *PLACE)])
    before = before_aggregation(pipeline.function(given))
    kept = None if before is None else frame_of(before, events.sparkSession)
    if kept is None or not set(PLACE) <= set(kept.columns):
        return events.withColumn("_filtered", F.lit(False))
    reached = kept.select(*PLACE).distinct().withColumn("_reached", F.lit(True))
    joined = events.join(reached, list(PLACE), "left")
    return joined.withColumn("_filtered", F.col("_reached").isNull()).drop("_reached")


def analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def before_aggregation(out: DataFrame) -> Any:
    """The plan below the function's lowest aggregation; None where it has none, or where plans meet before it."""
    node, found = analyzed(out), None
    while node.children().size() == 1:
        if node.nodeName() == "Aggregate":
            found = node.children().apply(0)
        node = node.children().apply(0)
    return found


def names(node: Any) -> list[str]:
    """The kinds of all nodes of a plan."""
    below = [node.children().apply(at) for at in range(node.children().size())]
    return [str(node.nodeName()), *(name for child in below for name in names(child))]


def frame_of(plan: Any, spark: SparkSession) -> DataFrame:
    """A plan's rows as a frame."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    jvm: Any = spark.sparkContext._jvm
    return ClassicFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
