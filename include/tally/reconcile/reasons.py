"""Replays the slots that differ, gives each differing row its cause, and keeps these rows in the audit table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tally import lake
from tally.catalog.duration import from_millis, iso, millis
from tally.catalog.ranges import merge
from tally.engine import jvm_pid
from tally.failpoints import failpoint
from tally.finite import finite
from tally.reconcile import explain, replay, trimmed
from tally.reconcile.causes import UNEXPLAINED
from tally.reconcile.cut import Cut, reaching_back
from tally.reconcile.differences import Slot, limits_frame, not_the_same
from tally.reconcile.found import Found
from tally.settings import settings
from tally.sources.ranged import in_ranges
from tally.supervise import lock

AUDITED = ("batch", "stream", "replayed")
# A summary shows this many rows; the audit table holds all of them.
SHOWN = 20


def give(
    spark: SparkSession, cut: Cut, differing: Mapping[int, Slot], limits: Mapping[int, tuple[float, float]],
    sides: Mapping[str, DataFrame], found: Found, number: int,
) -> None:  # fmt: skip
    """Put a cause to each row of these slots that is not the same in both layers, and write it to the audit table."""
    step = millis(cut.pipeline.window.step)
    slots = merge((slot, slot + step) for slot in differing)
    around = replay.events_around(spark, cut, reached(cut, differing))
    if replay.is_session(cut):
        cut = reaching_back(cut, replay.first_offsets(spark, cut, around))
    frames = [
        replay.tagged_events(spark, cut, topic, times).cache()
        for topic, times in zip(cut.pipeline.reads, around, strict=True)
    ]
    try:
        narrowed = {side: in_ranges(rows, "window_start", slots) for side, rows in sides.items()}
        affected: Sequence[DataFrame] = frames
        if replay.is_session(cut):
            both = (narrowed["batch"], narrowed["stream"])
            affected = [replay.with_differs(frame, *both, cut.pipeline) for frame in frames]
        gathered = explain.gather(affected, cut, set(differing))
        found.events, found.explained = gathered.events, gathered.by_slot
        narrowed["replayed"] = replay.replayed(cut, affected, slots)
        narrowed["restated"] = replay.restated(cut, affected, slots)
        rows = not_the_same(narrowed, cut.pipeline, limits_frame(spark, {slot: limits[slot] for slot in differing}))
        unproven = trimmed.unproven(spark, cut, sorted(differing), gathered.cells)
        rows = with_causes(rows, cut, gathered.cells, unproven).cache()
        count(rows, cut, found)
        write_audit(rows, cut, number)
        rows.unpersist()
    finally:
        for frame in frames:
            frame.unpersist()


def reached(cut: Cut, differing: Mapping[int, Slot]) -> list[tuple[int, int]]:
    """The windows to replay: of sessions all that either layer has, as far as the longest goes."""
    step = millis(cut.pipeline.window.step)
    if not replay.is_session(cut):
        return merge((slot, slot + step) for slot in differing)
    return merge((slot, max(slot + step, one.last_end)) for slot, one in differing.items())


def with_causes(rows: DataFrame, cut: Cut, cells: explain.Cells, unproven: Collection[int]) -> DataFrame:
    """Rows with `cause`, `explained` and `_rounding`: floating sums of the same events, and no difference at all.

    No event hides in a rounding: where one is counted in one layer only, a row is a difference however small.
    """
    keyed = bool(explain.key_columns(cut, cut.pipeline.reads[0]))

    def behind(slot: int, end: int, key: Row) -> str:
        if slot in unproven:  # neither the stream nor an earlier seal speaks for it
            return UNEXPLAINED
        return explain.cause_of({"_slot": slot, "_end": end, **key.asDict()}, cut, cells, keyed)

    named = F.udf(behind, "string", useArrow=False)
    caused = rows.withColumn("_events", named("_slot", "_over", F.struct(*cut.pipeline.key)))
    explained = F.col("_explained") & (F.col("_events") != UNEXPLAINED)
    told = F.when(~explained, UNEXPLAINED).when(F.col("_events") == "", "replay").otherwise(F.col("_events"))
    return caused.withColumns(
        {"explained": explained, "cause": told, "_rounding": F.col("_near") & (F.col("_events") == "")}
    )


def count(rows: DataFrame, cut: Cut, found: Found) -> None:
    for row in rows.groupBy("_rounding", "explained", "_slot").count().collect():
        if row["_rounding"]:
            found.equal += row["count"]
            found.rounding += row["count"]
            continue
        found.different += row["count"]
        if not row["explained"]:
            found.unexplained += row["count"]
            found.bad_slots[row["_slot"]] += row["count"]
    first = rows.where("NOT _rounding").orderBy("explained", "window_start", *cut.pipeline.key).limit(SHOWN).collect()
    found.rows = [shown(row.asDict(recursive=True), cut) for row in first]


def shown(row: dict[str, Any], cut: Cut) -> dict[str, Any]:
    """A differing row as a person or a script reads it."""

    def side(values: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if values is None else {k: plain(v) for k, v in values.items() if k != "_"}

    return {
        "window_start": iso(from_millis(row["_slot"])) if row["window_start"] is None else utc(row["window_start"]),
        "window_end": utc(row["window_end"]),
        **{name: plain(row[name]) for name in cut.pipeline.key},
        "batch": side(row["batch"]),
        "stream": side(row["stream"]),
        "cause": row["cause"],
    }


def utc(moment: Any) -> str:
    return iso(moment.astimezone())  # Spark hands out naive local times


def plain(value: Any) -> Any:
    return finite(value) if isinstance(value, int | float | str | bool | type(None)) else str(value)


def write_audit(rows: DataFrame, cut: Cut, number: int) -> None:
    """Append every differing row with its cause, under the comparison's id; a row is (reconciliation, window, key)."""
    pipeline = cut.pipeline
    where = settings().table("audit", pipeline.name)
    table = rows.where("NOT _rounding").select(
        F.lit(number).cast("bigint").alias("reconciliation"),
        "window_start",
        "window_end",
        F.to_json(F.struct(*pipeline.key)).alias("key"),
        *(F.to_json(F.col(side).dropFields("_")).alias(side) for side in AUDITED),
        "cause",
        "explained",
    )
    with lock.table("audit", pipeline.name, jvm=jvm_pid(rows.sparkSession)):
        said = lake.words("audit", reconciliation=number)
        failpoint("reconcile.before_audit")
        table.coalesce(1).write.format("delta").mode("append").option("userMetadata", said).save(where)
        failpoint("reconcile.after_audit")
