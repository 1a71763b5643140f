"""Which events a function leaves out, before it aggregates: they are in no window, so no layer differs by them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.spec import Pipeline
from tally.checks.plan import items
from tally.kinds import kind_of
from tally.kinds.frames import called
from tally.lake.inside_spark import frame_of

PLACE = ("_partition", "_offset")


def filters(spark: SparkSession, pipeline: Pipeline) -> bool:
    """Whether the function has a filter of its own between its one topic and its aggregation."""
    kind = kind_of(pipeline)
    if not kind.by_event:
        return False
    (given,) = kind.empty(spark)
    before = before_aggregation(called(pipeline, [given]))
    return before is not None and names(before).count("Filter") > names(analyzed(given)).count("Filter")


def with_filtered(events: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Events with `_filtered`: those that the function leaves out before it drops the columns that tell an event."""
    (given,) = kind_of(pipeline).bounded([events.select(*pipeline.reads[0].columns, *PLACE)])
    placed = with_places(before_aggregation(called(pipeline, [given])))
    if placed is None:
        return events.withColumn("_filtered", F.lit(False))
    kept = frame_of(placed, events.sparkSession)
    reached = kept.select(*PLACE).distinct().withColumn("_reached", F.lit(True))
    joined = events.join(reached, list(PLACE), "left")
    return joined.withColumn("_filtered", F.col("_reached").isNull()).drop("_reached")


def analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def before_aggregation(out: DataFrame) -> Any:
    """The plan below the function's lowest aggregation, all of it where there is none."""
    found = node = analyzed(out)
    while node.children().size() == 1:
        if node.nodeName() == "Aggregate":
            found = node.children().apply(0)
        node = node.children().apply(0)
    return found


def with_places(node: Any) -> Any:
    """The highest part of a plan whose rows still tell their event; None where none does."""
    while node is not None and not set(PLACE) <= {str(one.name()) for one in items(node.output())}:
        node = node.children().apply(0) if node.children().size() == 1 else None
    return node


def names(node: Any) -> list[str]:
    """The kinds of all nodes of a plan."""
    return [str(node.nodeName()), *(name for child in items(node.children()) for name in names(child))]
