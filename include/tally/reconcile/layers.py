"""What both layers hold at a cut: their rows by slot, the seals that stood over these, and the events behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.settings import settings
from tally.batch import restate
from tally.catalog.ranges import Range
from tally.control.seals import Seal
from tally.kinds import kind_of
from tally.reconcile import revisions, trimmed
from tally.reconcile.accounts import Account, Support, account, supports
from tally.reconcile.cut import Cut
from tally.reconcile.rows import rounding
from tally.reconcile.rows.differences import Limit, Slot, by_slot, floating, measures_of
from tally.reconcile.rows.made_of import MadeOf, measured
from tally.sources.ranged import in_ranges
from tally.speed import commit
from tally.speed.upkeep.fold import newest_rows


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Both layers' rows of the ranges by slot, what those slots' last seals held, and the events behind them."""

    sides: Mapping[str, DataFrame]
    slots: Mapping[int, Slot]
    sealed: Mapping[int, Seal]
    accounts: Sequence[tuple[Sequence[Range], Account]]
    supports: Mapping[int, Sequence[Support]]
    made_of: Sequence[MadeOf]  # for each floating measure, in order
    single: bool  # whether each row is of one event

    @cached_property
    def differing(self) -> dict[int, Slot]:
        """The slots in which more than rounding lies between the layers, or an event may hide in a rounding."""
        return {slot: one for slot, one in self.slots.items() if self.differs(slot)}

    def differs(self, slot: int) -> bool:
        one = self.slots[slot]
        if one.other == one.close == 0:  # the very same, as most are
            return False
        return not one.within(*self.limit(slot)) or (one.close > 0 and any(s.differing for s in self.supports[slot]))

    def limit(self, slot: int) -> Limit:
        """By which share of what sizes sums of a slot's events may differ and still be the same; what sums nothing, by
        none.
        """
        if self.single:
            return 0.0, [0.0 for _ in self.made_of]
        supports = self.supports[slot]
        return rounding.most(sum(one.events for one in supports), self.ceiling), [
            summed(made, supports) for made in self.made_of
        ]

    @cached_property
    def ceiling(self) -> float:
        """What no sum may differ by, however many events it is made of."""
        return settings().tolerance

    @property
    def rounding(self) -> int:
        """Rows that differ by rounding, in slots where nothing else lies between the layers."""
        return sum(one.close for slot, one in self.slots.items() if slot not in self.differing)

    @property
    def equal(self) -> int:
        """Rows that are the same in both layers, as far as no replay is needed to know it."""
        return sum(one.same for one in self.slots.values()) + self.rounding

    def unaccounted(self, cut: Cut) -> set[int]:
        """The sealed slots that changed although no event of theirs arrived."""
        return revisions.unaccounted(cut, self.sealed, self.slots, self.supports)


def read(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> Layers:
    """One pass over the rows of both layers, and one over each topic's events."""
    sides = read_sides(spark, cut, ranges)
    slots = by_slot(sides["batch"], sides["stream"], cut.pipeline)
    sealed = revisions.sealed(cut.pipeline, ranges)
    ends = {slot: one.last_end for slot, one in slots.items()}
    accounts = account(spark, cut, ranges, ends)
    behind = supports(cut, [one for _, one in accounts], revisions.with_windows(cut, ends, sealed))
    made_of = measured(spark, cut.pipeline, list(floating(measures_of(sides["batch"], cut.pipeline))))
    return Layers(
        sides=sides,
        slots=slots,
        sealed=sealed,
        accounts=accounts,
        supports=behind,
        made_of=made_of,
        single=kind_of(cut.pipeline).row_by_row,
    )


def summed(made: MadeOf, supports: Sequence[Support]) -> float:
    """The size of what a measure sums: of its largest column in each topic, together."""
    return sum(
        max((size for name, size in one.scale.items() if (at, name) in made), default=0.0)
        for at, one in enumerate(supports)
    )


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
