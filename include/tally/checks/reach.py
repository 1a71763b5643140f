"""Whether a join's condition keeps the events of a pair as near in time as the declared reach says."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from tally.base.duration import millis
from tally.catalog.spec import Pipeline
from tally.checks.plan import items, refuse
from tally.lake.inside_spark import in_jvm

# Any instant: how far below it Spark lets go of the other side's events is what is asked.
INSTANT = 1_767_600_000_000


def check_reach(spark: SparkSession, plan: Any, pipeline: Pipeline) -> None:
    """Refuse a join of streams that pairs events further apart than the batch reads beyond its range."""
    for join in joins(plan):
        if pipeline.reach is None:
            cure = "group by the window and the key, and compare inside the group; a join takes two topics"
            refuse(pipeline, "it joins its topic with itself, and the batch reads only the events of its windows", cure)
        for here, there in ((join.left(), join.right()), (join.right(), join.left())):
            apart = furthest(spark, join, here, there)
            if apart is None:
                refuse(
                    pipeline,
                    "the join does not say how far apart in time its events may lie",
                    "bound both sides: paid_at >= pickup AND paid_at < pickup + INTERVAL 30 MINUTES",
                    field="reach",
                )
            if apart > millis(pipeline.reach):
                refuse(
                    pipeline,
                    f"the join pairs events up to {apart / 1000:g} seconds apart, and the batch reads less far",
                    "say in reach= what the join's condition says",
                    field="reach",
                )


def joins(plan: Any) -> list[Any]:
    """The joins of two streams in a plan."""
    below = items(plan.children())
    mine = [plan] if plan.nodeName() == "Join" and all(child.isStreaming() for child in below) else []
    return mine + [join for child in below for join in joins(child)]


def furthest(spark: SparkSession, join: Any, here: Any, there: Any) -> int | None:
    """By how many milliseconds an event of one side may be older than its partner; None where nothing bounds it."""
    helper = in_jvm(spark, "org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper")
    found = helper.getStateValueWatermark(
        here.outputSet(), there.outputSet(), join.condition(), in_jvm(spark, "scala.Some")(INSTANT)
    )
    return max(0, INSTANT - int(found.get()) - 1) if found.isDefined() else None
