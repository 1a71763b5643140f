"""Replays the slots that differ, gives each differing row its cause, and keeps these rows in the audit table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis, iso, millis
from tally.base.failpoints import failpoint
from tally.base.json_values import finite
from tally.base.settings import settings
from tally.catalog.ranges import event_ranges, merge
from tally.host import lock
from tally.kinds import kind_of
from tally.lake import delta
from tally.lake.session import jvm_pid
from tally.reconcile import explain, replay, trimmed
from tally.reconcile.causes import UNEXPLAINED
from tally.reconcile.cut import Cut, reaching_back
from tally.reconcile.differences import Limit, Slot, limits_frame, not_the_same
from tally.reconcile.found import Found
from tally.sources.ranged import in_ranges

AUDITED = ("batch", "stream", "replayed")
# A summary shows this many rows; the audit table holds all of them.
SHOWN = 20


def give(
    spark: SparkSession, cut: Cut, differing: Mapping[int, Slot], limits: Mapping[int, Limit],
    sides: Mapping[str, DataFrame], found: Found, number: int,
) -> None:  # fmt: skip
    """Put a cause to each row of these slots that is not the same in both layers, and write it to the audit table."""
    pipeline, kind, step = cut.pipeline, kind_of(cut.pipeline), millis(cut.pipeline.window.step)
    slots = merge((slot, slot + step) for slot in differing)
    around = kind.replay_reads(spark, {slot: one.last_end for slot, one in differing.items()}, cut.stated.versions)
    if around != event_ranges(pipeline, slots):  # further than the comparison looked
        cut = reaching_back(cut, replay.first_offsets(cut, around))
    frames = [
        replay.tagged_events(spark, cut, topic, times).cache()
        for topic, times in zip(pipeline.reads, around, strict=True)
    ]
    try:
        narrowed = {side: in_ranges(rows, "window_start", slots) for side, rows in sides.items()}
        keys = replay.differing_keys(narrowed["batch"], narrowed["stream"], pipeline)
        affected = [kind.narrowed(frame, keys) for frame in frames]
        gathered = explain.gather(affected, cut, set(differing))
        found.events, found.explained = gathered.events, gathered.by_slot
        narrowed["replayed"] = replay.replayed(cut, affected, slots)
        narrowed["restated"] = replay.restated(cut, affected, slots)
        rows = not_the_same(narrowed, pipeline, limits_frame(spark, {slot: limits[slot] for slot in differing}))
        unproven = trimmed.unproven(spark, cut, sorted(differing), gathered.cells)
        rows = with_causes(rows, cut, gathered.cells, unproven).cache()
        count(rows, cut, found)
        write_audit(rows, cut, number)
        rows.unpersist()
    finally:
        for frame in frames:
            frame.unpersist()


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


def as_json(side: str, rows: DataFrame) -> Column:
    """A side's measures; null where it has no such row."""
    if len(rows.schema[side].dataType.fieldNames()) == 1:  # no measures: the row is all
        return F.when(F.col(side).isNotNull(), "{}")
    return F.to_json(F.col(side).dropFields("_"))


def write_audit(rows: DataFrame, cut: Cut, number: int) -> None:
    """Append every differing row with its cause, under the comparison's id; a row is (reconciliation, window, key)."""
    pipeline = cut.pipeline
    where = settings().table("audit", pipeline.name)
    table = rows.where("NOT _rounding").select(
        F.lit(number).cast("bigint").alias("reconciliation"),
        "window_start",
        "window_end",
        F.to_json(F.struct(*pipeline.key)).alias("key"),
        *(as_json(side, rows).alias(side) for side in AUDITED),
        "cause",
        "explained",
    )
    with lock.table("audit", pipeline.name, jvm=jvm_pid(rows.sparkSession)):
        said = delta.words("audit", reconciliation=number)
        failpoint("reconcile.before_audit")
        table.coalesce(1).write.format("delta").mode("append").option("userMetadata", said).save(where)
        failpoint("reconcile.after_audit")
