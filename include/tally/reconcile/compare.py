"""Compares the layers at one cut: all rows in one pass, then a replay where they differ, with causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis, instant, iso
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.batch import restate
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned, event_ranges, overlap, without
from tally.control import runs
from tally.control.seals import Seal
from tally.kinds import kind_of
from tally.lake import delta, memory
from tally.lake.session import session
from tally.reconcile import audit, reasons, replay, revisions, rounding, trimmed
from tally.reconcile.accounts import Account, Support, account
from tally.reconcile.accounts import supports as support_of
from tally.reconcile.conserve import conservation
from tally.reconcile.cut import Cut, closed, due, find, reaching_back
from tally.reconcile.differences import Limit, Slot, by_slot, floating, measures_of
from tally.reconcile.filtered import filters
from tally.reconcile.found import Found, slot_states, summary
from tally.reconcile.made_of import MadeOf, measured
from tally.sources.ranged import in_ranges
from tally.speed import commit
from tally.speed.upkeep.fold import newest_rows


@memory.told(memory.BATCH)
def compare(name: str, start: str | None = None, end: str | None = None, ticket: str = "") -> int:
    """Compare a range of windows, or all that are due, and keep what was found; the reconciliation's id."""
    pipeline = catalogue().pipeline(name)
    wanted = None
    if (start is None) != (end is None):
        raise TallyError("half a range", pipeline=name, field="--from/--to", cure="give both, or neither for all due")
    if start is not None and end is not None:
        wanted = aligned((instant(start, "--from"), instant(end, "--to")), pipeline)
    spark = session(f"tally-reconcile-{name}", brief=True)
    cut = find(pipeline, kind_of(pipeline).late_rule(spark), filters(spark, pipeline))
    audit.after_others(spark, pipeline)  # what others changed in the table is held first, and so is due
    ranges = ranges_of(cut, wanted)
    first, last = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    written = delta.newest(settings().table("audit", name), "audit")
    after = int(written.words["reconciliation"]) if written else 0  # a new control store counts on from the old one
    number = runs.open_reconciliation(name, pipeline.version, first, last, ticket, after=after)
    # With ids, once more: now it is known how far back the stream held them when it took those events.
    for _ in range(2 if any(topic.unique for topic in pipeline.reads) else 1):
        cut = reaching_back(cut, replay.first_offsets(cut, event_ranges(pipeline, ranges)))
    seen = look(spark, cut, ranges)
    differing = seen.differing()
    found = seen.found(cut, differing)
    if differing:
        limits = {slot: seen.limit(slot) for slot in differing}
        reasons.give(spark, cut, differing, limits, seen.sides, found, number)
    states = slot_states(cut, ranges, seen.slots, found)
    runs.keep_comparison(number, summary(cut, ranges, found, states, ticket), states)
    failpoint("reconcile.after_compare")
    return number


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Both layers' rows of the ranges by slot, what those slots' last seals held, and the events behind them."""

    sides: Mapping[str, DataFrame]
    slots: Mapping[int, Slot]
    sealed: Mapping[int, Seal]
    accounts: Sequence[tuple[Sequence[Range], Account]]
    supports: Mapping[int, Sequence[Support]]
    made_of: Sequence[MadeOf]  # for each floating measure, in order
    single: bool  # whether each row is of one event

    def differing(self) -> dict[int, Slot]:
        """The slots in which more than rounding lies between the layers, or an event may hide in a rounding."""
        return {slot: one for slot, one in self.slots.items() if self.differs(slot)}

    def differs(self, slot: int) -> bool:
        one = self.slots[slot]
        return not one.within(*self.limit(slot)) or (one.close > 0 and any(s.differing for s in self.supports[slot]))

    def limit(self, slot: int) -> Limit:
        """By which share of what sizes sums of a slot's events may differ and still be the same; what sums nothing, by
        none.
        """
        if self.single:
            return 0.0, [0.0 for _ in self.made_of]
        supports = self.supports[slot]
        return rounding.most(sum(one.events for one in supports)), [summed(made, supports) for made in self.made_of]

    def found(self, cut: Cut, differing: Mapping[int, Slot]) -> Found:
        """What is known before any slot is replayed."""
        settled = [one for slot, one in self.slots.items() if slot not in differing]
        return Found(
            equal=sum(one.same for one in self.slots.values()) + sum(one.close for one in settled),
            rounding=sum(one.close for one in settled),
            conserved=conservation(cut, self.accounts),
            unaccounted=revisions.unaccounted(cut, self.sealed, self.slots, self.supports),
        )


def look(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> Seen:
    """One pass over the rows of both layers, and one over each topic's events."""
    sides = read_sides(spark, cut, ranges)
    slots = by_slot(sides["batch"], sides["stream"], cut.pipeline)
    sealed = revisions.sealed(cut.pipeline, ranges)
    ends = {slot: one.last_end for slot, one in slots.items()}
    accounts = account(spark, cut, ranges, ends)
    supports = support_of(cut, [one for _, one in accounts], revisions.with_windows(cut, ends, sealed))
    made_of = measured(spark, cut.pipeline, list(floating(measures_of(sides["batch"], cut.pipeline))))
    return Seen(sides=sides, slots=slots, sealed=sealed, accounts=accounts, supports=supports, made_of=made_of,
                single=kind_of(cut.pipeline).row_by_row)  # fmt: skip


def summed(made: MadeOf, supports: Sequence[Support]) -> float:
    """The size of what a measure sums: of its largest column in each topic, together."""
    return sum(
        max((size for name, size in one.scale.items() if made is None or (at, name) in made), default=0.0)
        for at, one in enumerate(supports)
    )


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
        return in_ranges(rows, "window_start", ranges)

    batch = load(restate.path(pipeline), cut.batch_version).drop("_date")
    rows = load(commit.path(pipeline), cut.speed_version).drop("_date")
    if not cut.travels:
        rows = rows.where(F.col("_batch") <= commit.order(cut.last.generation, cut.last.batch))
    stream = newest_rows(rows, pipeline).drop("_batch").select(*batch.columns)
    again = trimmed.stand_in(spark, cut, ranges)
    return {"batch": batch, "stream": stream if again is None else stream.unionByName(again)}
