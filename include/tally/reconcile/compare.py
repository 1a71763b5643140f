"""Compares the layers at one cut: digests first, then row by row where they differ, each difference with its cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from tally import lake
from tally.batch import restate
from tally.batch.events import starting_in
from tally.batch.report import instant
from tally.catalog.duration import from_millis, iso, millis
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned, merge, overlap, without
from tally.catalog.spec import Pipeline
from tally.control import runs, seals
from tally.engine import jvm_pid, session
from tally.errors import AnswerIsNo, TallyError
from tally.failpoints import failpoint
from tally.finite import finite
from tally.reconcile import explain, replay, trimmed
from tally.reconcile.conserve import conservation, ingest_balance, ingests
from tally.reconcile.cut import Cut, closed, due, find, reaching_back
from tally.reconcile.digest import Digest, digests, slot_of
from tally.reconcile.fate import late_rule
from tally.reconcile.filtered import filters
from tally.settings import settings
from tally.speed import commit
from tally.speed.fold import newest_rows
from tally.supervise import lock

SIDES = ("batch", "stream", "replayed", "restated")
AUDITED = ("batch", "stream", "replayed")
# A summary shows this many rows; the audit table holds all of them.
SHOWN = 20


@dataclass(kw_only=True)
class Found:
    """What a comparison found, before anybody judged it."""

    equal: int = 0
    different: int = 0
    rounding: int = 0
    unexplained: int = 0
    events: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad_slots: Counter[int] = field(default_factory=Counter)
    explained: Counter[int] = field(default_factory=Counter)
    conserved: dict[str, Any] = field(default_factory=dict)


def compare(name: str, start: str | None = None, end: str | None = None, ticket: str = "") -> int:
    """Compare a range of windows, or all that are due, and keep what was found; the reconciliation's id."""
    pipeline = catalogue().pipeline(name)
    wanted = None
    if (start is None) != (end is None):
        raise TallyError("half a range", pipeline=name, field="--from/--to", cure="give both, or neither for all due")
    if start is not None and end is not None:
        wanted = aligned((instant(start, "--from"), instant(end, "--to")), pipeline)
    spark = session(f"tally-reconcile-{name}")
    cut = find(pipeline, late_rule(spark, pipeline), filters(spark, pipeline))
    ranges = ranges_of(cut, wanted)
    first, last = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    written = lake.newest(settings().table("audit", name), "audit")
    after = int(written.words["reconciliation"]) if written else 0  # a new control store counts on from the old one
    number = runs.open_reconciliation(name, pipeline.version, first, last, ticket, after=after)
    around = replay.events_around(spark, cut, ranges)
    cut = reaching_back(cut, replay.first_offsets(spark, cut, around))
    sides = read_sides(spark, cut, ranges)
    again = trimmed.stand_in(spark, cut, ranges)
    if again is not None:
        sides["stream"] = sides["stream"].unionByName(again)
    by_slot = {side: digests(rows, pipeline) for side, rows in sides.items()}
    differing = sorted(slots_that_differ(by_slot["batch"], by_slot["stream"]))
    found = Found(equal=sum(d.rows for slot, d in by_slot["batch"].items() if slot not in set(differing)))
    explain_all(spark, cut, ranges, around, differing, sides, found, number)
    states = slot_states(cut, ranges, by_slot, found)
    runs.keep_comparison(number, summary(cut, ranges, found, states, ticket), states)
    failpoint("reconcile.after_compare")
    return number


def ranges_of(cut: Cut, wanted: Range | None) -> list[Range]:
    """The window starts to compare; a range that the batch never stated is refused."""
    if wanted is None:
        return due(cut)
    a, b = (iso(from_millis(ms)) for ms in wanted)
    missing = without([wanted], cut.stated.current)
    if missing == [wanted]:
        again = " since later events of it were archived" if overlap([wanted], cut.stated.stale) else ""
        raise AnswerIsNo(
            f"the batch has not stated [{a}, {b}){again}",
            pipeline=cut.pipeline.name,
            cure=f"tally batch {cut.pipeline.name} --from {a} --to {b}",
        )
    stated = without([wanted], missing)
    found = stated if cut.travels else closed(cut, stated)
    if not found:
        raise AnswerIsNo(
            "these windows were open when the batch last read Kafka, which is too long ago to compare them so",
            pipeline=cut.pipeline.name,
            cure=f"tally batch {cut.pipeline.name} --from {a} --to {b}",
        )
    return found


def read_sides(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> dict[str, DataFrame]:
    """Both tables as of the cut, restricted to the ranges, with the same columns."""
    pipeline = cut.pipeline

    def load(path: str, version: int) -> DataFrame:
        rows = spark.read.format("delta").option("versionAsOf", version).load(path)
        if not ranges:
            return rows.where("false")
        first, last = ranges[0][0], ranges[-1][1] - 1
        days = (F.col("_date") >= F.lit(from_millis(first).date())) & (
            F.col("_date") <= F.lit(from_millis(last).date())
        )
        return starting_in(rows.where(days), ranges)

    batch = load(restate.path(pipeline), cut.batch_version).drop("_date")
    rows = load(commit.path(pipeline), cut.speed_version).drop("_date")
    if not cut.travels:
        rows = rows.where(F.col("_batch") <= commit.order(cut.last.generation, cut.last.batch))
    stream = newest_rows(rows, pipeline).drop("_batch")
    return {"batch": batch, "stream": stream.select(*batch.columns)}


def slots_that_differ(batch: dict[int, Digest], stream: dict[int, Digest]) -> set[int]:
    return {s for s in batch.keys() | stream.keys() if (d := batch.get(s)) is None or stream.get(s) != d}


def explain_all(
    spark: SparkSession, cut: Cut, ranges: Sequence[Range], around: Sequence[Sequence[Range]], slots: Sequence[int],
    sides: dict[str, DataFrame], found: Found, number: int,
) -> None:  # fmt: skip
    """Replay the slots that differ, put a cause to each row, and write these to the audit table."""
    step = millis(cut.pipeline.window.step)
    differing = merge((slot, slot + step) for slot in slots)
    frames = [
        replay.tagged_events(spark, cut, topic, wanted).cache()
        for topic, wanted in zip(cut.pipeline.reads, around, strict=True)
        if wanted
    ]
    try:
        found.conserved = conservation(spark, cut, frames, ranges)
        if differing:
            affected = replay.within_ranges(
                frames, cut, around if replay.is_session(cut) else replay.event_ranges(cut, differing)
            )
            narrowed = {side: starting_in(rows, differing) for side, rows in sides.items()}
            if replay.is_session(cut):
                both = (narrowed["batch"], narrowed["stream"])
                affected = [replay.with_differs(frame, *both, cut.pipeline) for frame in affected]
            gathered = explain.gather(affected, cut, set(slots))
            found.events, found.explained, cells = gathered.events, gathered.by_slot, gathered.cells
            narrowed["replayed"] = replay.replayed(cut, affected, differing)
            narrowed["restated"] = replay.restated(cut, affected, differing)
            rows = side_by_side(narrowed, cut.pipeline).cache()
            count_rows(rows, cut, cells, found)
            write_audit(rows, cut, cells, number)
            rows.unpersist()
    finally:
        for frame in frames:
            frame.unpersist()


def side_by_side(sides: dict[str, DataFrame], pipeline: Pipeline) -> DataFrame:
    """One row per window and key with the measures of each side (null: no such row), and how they compare."""
    keys = ["window_start", "window_end", *pipeline.key]
    measures = [f for f in sides["batch"].schema.fields if f.name not in keys]
    packed = [
        rows.select(
            *keys, F.lit(side).alias("_side"), F.struct(F.lit(1).alias("_"), *(f.name for f in measures)).alias("_row")
        )
        for side, rows in sides.items()
    ]
    union = packed[0]
    for frame in packed[1:]:
        union = union.unionByName(frame)
    by_side = [F.first(F.when(F.col("_side") == side, F.col("_row")), ignorenulls=True).alias(side) for side in SIDES]
    joined = union.groupBy(*keys).agg(*by_side)
    kinds = {f.name: f.dataType for f in measures}
    return joined.select(
        *keys, *SIDES,
        slot_of(pipeline).alias("_slot"),
        F.unix_millis("window_end").alias("_end"),
        same("batch", "stream", kinds, exact=False).alias("_same"),
        same("batch", "stream", kinds, exact=True).alias("_identical"),
        # Each side must be what the archive gives: the stream's by the replay, the batch's by stating it again.
        (
            same("replayed", "stream", kinds, exact=False) & same("restated", "batch", kinds, exact=False)
        ).alias("_explained"),
    ).where("batch IS NOT NULL OR stream IS NOT NULL")  # fmt: skip


def same(left: str, right: str, kinds: dict[str, DataType], *, exact: bool) -> Column:
    """Whether two sides agree: both lack the row, or all measures are equal, floats within the tolerance."""
    equal = F.lit(True)
    for name, kind in kinds.items():
        a, b = F.col(f"{left}.{name}"), F.col(f"{right}.{name}")
        if isinstance(kind, DoubleType | FloatType) and not exact:
            near = F.abs(a - b) <= F.greatest(F.abs(a), F.abs(b), F.lit(1.0)) * F.lit(settings().tolerance)
            equal = equal & (a.eqNullSafe(b) | F.coalesce(near, F.lit(False)))
        else:
            equal = equal & a.eqNullSafe(b)
    lacking = F.col(left).isNull() & F.col(right).isNull()
    return lacking | (F.col(left).isNotNull() & F.col(right).isNotNull() & equal)


def count_rows(rows: DataFrame, cut: Cut, cells: explain.Cells, found: Found) -> None:
    totals = rows.groupBy("_same", "_identical", "_explained", "_slot").count().collect()
    for row in totals:
        if row["_same"]:
            found.equal += row["count"]
            found.rounding += 0 if row["_identical"] else row["count"]
        else:
            found.different += row["count"]
            if not row["_explained"]:
                found.unexplained += row["count"]
                found.bad_slots[row["_slot"]] += row["count"]
    keyed = bool(explain.key_columns(cut, cut.pipeline.reads[0]))
    first = rows.where("NOT _same").orderBy("_explained", "window_start", *cut.pipeline.key).limit(SHOWN).collect()
    found.rows = [shown(row.asDict(recursive=True), cut, cells, keyed) for row in first]


def shown(row: dict[str, Any], cut: Cut, cells: explain.Cells, keyed: bool) -> dict[str, Any]:
    """A differing row as a person or a script reads it."""

    def side(values: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if values is None else {k: plain(v) for k, v in values.items() if k != "_"}

    cause = explain.cause_of(row, cut, cells, keyed) if row["_explained"] else "unexplained"
    return {
        "window_start": iso(from_millis(row["_slot"])) if row["window_start"] is None else utc(row["window_start"]),
        "window_end": utc(row["window_end"]),
        **{name: plain(row[name]) for name in cut.pipeline.key},
        "batch": side(row["batch"]),
        "stream": side(row["stream"]),
        "cause": cause,
    }


def utc(moment: Any) -> str:
    return iso(moment.astimezone())  # Spark hands out naive local times


def plain(value: Any) -> Any:
    return finite(value) if isinstance(value, int | float | str | bool | type(None)) else str(value)


def write_audit(rows: DataFrame, cut: Cut, cells: explain.Cells, number: int) -> None:
    """Append every differing row with its cause, under the comparison's id; a row is (reconciliation, window, key)."""
    pipeline = cut.pipeline
    where = settings().table("audit", pipeline.name)
    keyed = bool(explain.key_columns(cut, pipeline.reads[0]))
    key_names = list(pipeline.key)

    def cause(slot: int, end: int, key: Row, explained: bool) -> str:
        row = {"_slot": slot, "_end": end, **key.asDict()}
        return explain.cause_of(row, cut, cells, keyed) if explained else "unexplained"

    named = F.udf(cause, "string", useArrow=False)
    key = F.struct(*key_names)
    table = rows.where("NOT _same").select(
        F.lit(number).cast("bigint").alias("reconciliation"),
        "window_start",
        "window_end",
        F.to_json(key).alias("key"),
        *(F.to_json(F.col(side).dropFields("_")).alias(side) for side in AUDITED),
        named("_slot", "_end", key, "_explained").alias("cause"),
        F.col("_explained").alias("explained"),
    )
    with lock.table("audit", pipeline.name, jvm=jvm_pid(rows.sparkSession)):
        said = lake.words("audit", reconciliation=number)
        table.coalesce(1).write.format("delta").mode("append").option("userMetadata", said).save(where)


def slot_states(
    cut: Cut, ranges: Sequence[Range], by_slot: dict[str, dict[int, Digest]], found: Found
) -> list[dict[str, Any]]:
    """Each slot between the first and the last with rows: what a seal is put on.

    Where the slot before a range is judged, the range's first empty slots are too, so that seals leave no gap.
    """
    step = millis(cut.pipeline.window.step)
    filled = by_slot["batch"].keys() | by_slot["stream"].keys()
    if not filled:
        return []
    judged = {seal.slot_end for seal in seals.read(cut.pipeline.name, cut.pipeline.version)}
    states = []
    for start, end in ranges:
        first = start if start in judged else max(start, min(filled))
        for slot in range(first, min(end, max(filled) + step), step):
            states.append(slot_state(cut, slot, slot + step, by_slot, found))
    return states


def slot_state(cut: Cut, slot: int, end: int, by_slot: dict[str, dict[int, Digest]], found: Found) -> dict[str, Any]:
    batch, stream = by_slot["batch"].get(slot), by_slot["stream"].get(slot)
    size = millis(cut.pipeline.window.size)
    ends = [d.last_end for d in (batch, stream) if d] or [end - 1 + size]
    return {
        "start": slot,
        "end": end,
        "rows": batch.rows if batch else 0,
        "stream_rows": stream.rows if stream else 0,
        "digest": batch.hash if batch else "0",
        "closed": all(cut.closed(e) for e in [*ends, end]),
        "unexplained": found.bad_slots[slot],
        "explained": found.explained[slot],
    }


def summary(
    cut: Cut, ranges: Sequence[Range], found: Found, states: Sequence[dict[str, Any]], ticket: str
) -> dict[str, Any]:
    """The comparison as one plain document."""
    return {
        "pipeline": cut.pipeline.name,
        "version": cut.pipeline.version,
        "from": iso(from_millis(ranges[0][0])) if ranges else None,
        "to": iso(from_millis(ranges[-1][1])) if ranges else None,
        "ranges": [list(r) for r in ranges],
        "ticket": ticket,
        "windows": found.equal + found.different,
        "equal": found.equal,
        "different": found.different,
        "rounding": found.rounding,
        "events": dict(sorted(found.events.items())),
        "unexplained": found.unexplained,
        "rows": found.rows,
        "open_windows": sum(max(s["rows"], s["stream_rows"]) for s in states if not s["closed"]),
        "conservation": found.conserved,
        "ingest": ingest_balance(cut.pipeline),
        "cut": {
            "batch": cut.last.batch,
            "generation": cut.last.generation,
            "watermark": iso(from_millis(cut.last.watermark)),
            "speed_version": cut.speed_version,
        },
        "batch_version": cut.batch_version,
        "archive": ingests(cut),
        "verdict": "compared",
    }
