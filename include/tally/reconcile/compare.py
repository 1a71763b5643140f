"""Compares the layers at one cut: digests first, then row by row where they differ, each difference with its cause."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally import lake, memory
from tally.batch import restate
from tally.batch.events import starting_in
from tally.batch.report import instant
from tally.catalog.duration import from_millis, iso, millis
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned, merge, overlap, without
from tally.control import runs
from tally.engine import session
from tally.errors import AnswerIsNo, TallyError
from tally.failpoints import failpoint
from tally.reconcile import audit, explain, replay, trimmed
from tally.reconcile.conserve import conservation
from tally.reconcile.cut import Cut, closed, due, find, reaching_back
from tally.reconcile.differences import count_rows, side_by_side, vouched, write_audit
from tally.reconcile.digest import Digest, digests
from tally.reconcile.fate import late_rule
from tally.reconcile.filtered import filters
from tally.reconcile.found import Found, slot_states, summary
from tally.settings import settings
from tally.speed import commit
from tally.speed.fold import newest_rows


@memory.told(memory.BATCH)
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
    audit.after_others(spark, pipeline)  # what others changed in the table is held first, and so is due
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
            rows = side_by_side(narrowed, cut.pipeline)
            rows = vouched(rows, trimmed.unproven(spark, cut, slots, cells)).cache()
            count_rows(rows, cut, cells, found)
            write_audit(rows, cut, cells, number)
            rows.unpersist()
    finally:
        for frame in frames:
            frame.unpersist()
