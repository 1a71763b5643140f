"""The reader in Spark: the same rows as the reader without a JVM, as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tally.base.duration import from_millis
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.reconcile.rows.hashes import slot_of
from tally.serving.state import (
    CLOSED,
    OPEN,
    PARTIAL,
    WINDOW,
    Judged,
    Layer,
    check_columns,
    check_request,
    unmoved,
)
from tally.speed.upkeep.fold import newest_rows


def served(
    spark: SparkSession,
    pipeline: Pipeline,
    from_ms: int | None = None,
    to_ms: int | None = None,
    layer: Layer = "served",
) -> DataFrame:
    """The rows of windows that start in [from, to): window, key, measures, state and revision, in no order.

    It reads the versions of the tables that were current when it was called, however often it is acted on.
    """
    check_request(pipeline, from_ms, to_ms, layer)
    slots, speed, batch = unmoved(pipeline, from_ms, to_ms, lambda layer: pinned(spark, layer, pipeline))
    front = [*WINDOW, *pipeline.key]
    names = output_columns(pipeline, batch or speed)
    check_columns(pipeline, names)
    speed, batch = (rows_of(spark, pipeline, table, from_ms, to_ms) for table in (speed, batch))
    states = slot_states(spark, slots)
    stream_state = (
        F.when(F.unix_micros("window_start") < slots.begins * 1000, PARTIAL)
        .when(F.unix_micros("window_end") <= slots.watermark * 1000, CLOSED)
        .otherwise(OPEN)
    )
    if layer == "batch":
        judged_rows = batch.join(states, slot_of(pipeline) == F.col("_slot"), "left")
        state, revision = F.coalesce("_state", stream_state), F.coalesce("_revision", F.lit(0))
        return judged_rows.select(*names, state.alias("state"), revision.alias("revision"))
    newest = newest_rows(speed, pipeline).withColumn("state", stream_state).withColumn("revision", F.lit(0))
    if layer == "speed":
        return newest.select(*names, "state", "revision")
    stated = batch.join(states, slot_of(pipeline) == F.col("_slot"))
    # A table that somebody harmed may have a row twice: nobody vouches for it then, and still one row a key is served.
    doubtful = first_rows(stated.where("_state <> 'sealed'"), front, [F.col(name).asc_nulls_first() for name in names])
    live = newest.join(states, slot_of(pipeline) == F.col("_slot"), "left_anti")
    judged_rows = stated.where("_state = 'sealed'").unionByName(doubtful)
    shown = judged_rows.select(*names, F.col("_state").alias("state"), F.col("_revision").alias("revision"))
    return shown.unionByName(live.select(*names, "state", "revision"))


def pinned(spark: SparkSession, layer: str, pipeline: Pipeline) -> DataFrame | None:
    """The newest version of a layer's table, which later commits don't change; None where nothing was ever written."""
    path = settings().table(layer, pipeline.name, pipeline.version)
    if not DeltaTable.isDeltaTable(spark, path):
        return None
    version = DeltaTable.forPath(spark, path).history(1).select("version").first()
    assert version is not None, "a Delta table has a commit"
    return spark.read.format("delta").option("versionAsOf", version[0]).load(path)


def output_columns(pipeline: Pipeline, known: DataFrame | None) -> list[str]:
    """The window, the key and the measures, in that order."""
    front = [*WINDOW, *pipeline.key]
    if known is None:
        return front
    return [*front, *(name for name in known.columns if name not in front and not name.startswith("_"))]


def rows_of(
    spark: SparkSession, pipeline: Pipeline, table: DataFrame | None, from_ms: int | None, to_ms: int | None
) -> DataFrame:
    """A table's rows of windows that start in [from, to); the partition column is bounded first."""
    if table is None:
        return spark.createDataFrame([], declared_schema(pipeline))
    if from_ms is not None:
        start = from_millis(from_ms)
        table = table.where((F.col("_date") >= F.lit(start.date())) & (F.col("window_start") >= F.lit(start)))
    if to_ms is not None:
        last = from_millis(to_ms - 1)
        table = table.where(
            (F.col("_date") <= F.lit(last.date())) & (F.col("window_start") < F.lit(from_millis(to_ms)))
        )
    return table


def declared_schema(pipeline: Pipeline) -> str:
    """DDL of what is known of an output before any of it was written."""
    types = {field.name: field.type for topic in reversed(pipeline.reads) for field in topic.schema}
    keys = [f"`{name}` {types.get(name, 'STRING')}" for name in pipeline.key]
    return ", ".join(["window_start TIMESTAMP", "window_end TIMESTAMP", *keys, "_batch BIGINT"])


def first_rows(rows: DataFrame, front: Sequence[str], order: Sequence[Column]) -> DataFrame:
    """Of each window and key one row, the first in an order."""
    ordered = Window.partitionBy(*front).orderBy(*order)
    return rows.withColumn("_place", F.row_number().over(ordered)).where("_place = 1").drop("_place")


def slot_states(spark: SparkSession, slots: Judged) -> DataFrame:
    """The judged slots as a table small enough to be sent to every task."""
    rows = [(start, state, revision) for start, state, revision in slots.slots]
    return F.broadcast(spark.createDataFrame(rows, "_slot BIGINT, _state STRING, _revision INT"))
