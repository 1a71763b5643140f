"""Where each record is: what became of the archived events of a comparison, by cell of the grid of windows, in one pass
for each topic; and conservation, that as many are accounted for as another reader counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import millis
from tally.catalog.ranges import Range, event_ranges, merge
from tally.catalog.spec import Topic
from tally.control import runs
from tally.kinds import fates, kind_of
from tally.lake import delta
from tally.reconcile.conservation import Conservation
from tally.reconcile.cut import Cut
from tally.reconcile.replay import expected_rows
from tally.reconcile.rows.made_of import is_number
from tally.sources import archive
from tally.sources.columns import columns

Numbers = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Support:
    """What stands behind some rows: how many events, their size, the last ingest, and whether the layers differ."""

    events: int = 0
    scale: Mapping[str, float] = field(default_factory=dict)  # by column of numbers, the sum of the sizes
    newest: int = -1
    differing: bool = False


@dataclass(frozen=True, kw_only=True)
class Account:
    """One topic's events: where each is accounted for; and by cell of event time, in order, what lies in it."""

    places: Mapping[str, int]
    starts: Sequence[int]
    events: Numbers
    scale: Mapping[str, Numbers]  # by column of numbers, the sum of the sizes
    newest: Numbers  # the last ingest that had a say in them
    differing: Numbers  # whether one layer counts an event that the other doesn't

    def within(self, start: int, end: int) -> Support:
        """What the cells of a range of event time hold."""
        mine = slice(bisect_left(self.starts, start), bisect_left(self.starts, end))
        if mine.start >= mine.stop:
            return Support()
        return Support(
            events=int(self.events[mine].sum()),
            scale={name: float(sizes[mine].sum()) for name, sizes in self.scale.items()},
            newest=int(self.newest[mine].max()),
            differing=bool(self.differing[mine].any()),
        )


def account(
    spark: SparkSession, cut: Cut, ranges: Sequence[Range], ends: Mapping[int, int]
) -> list[tuple[list[Range], Account]]:
    """What became of each archived event that windows of the ranges are made of: by topic, with the event times.

    `ends` says how far the windows of a slot reach: some may be longer than their range.
    """
    if not ranges:
        return [([], of_rows([])) for _ in cut.pipeline.reads]
    parts = zip(cut.pipeline.reads, times_of(cut, ranges, ends), strict=True)
    return [
        (times, counted(expected_rows.tagged_events(spark, cut, topic, times), topic, cut)) for topic, times in parts
    ]


def times_of(cut: Cut, ranges: Sequence[Range], ends: Mapping[int, int]) -> list[list[Range]]:
    """Per topic, the event times of the windows that start in the ranges, and of those that these slots have."""
    kind, gap = kind_of(cut.pipeline), millis(cut.pipeline.window.gap)
    of_slots = [kind.made_of(slot, end) for slot, end in ends.items()]
    return [
        merge([*((start - gap, end + gap) for start, end in times), *(one[at] for one in of_slots)])
        for at, times in enumerate(event_ranges(cut.pipeline, ranges))
    ]


def counted(events: DataFrame, topic: Topic, cut: Cut) -> Account:
    time, step = F.unix_millis(topic.event_time), F.lit(millis(cut.pipeline.window.step))
    sizes = {one.name: F.sum(F.abs(F.col(one.name).cast("double"))) for one in topic.schema if is_number(one)}
    scale = [F.coalesce(size, F.lit(0.0)).alias(f"scale {name}") for name, size in sizes.items()]
    rows = (
        events.groupBy((time - F.pmod(time, step)).alias("cell"), place(topic, cut).alias("place"))
        .agg(
            F.count("*").alias("events"),
            *scale,
            F.max("_newest").alias("newest"),
            F.bool_or(differing(topic, cut)).alias("differing"),
        )
        .collect()
    )
    return of_rows(rows, list(sizes))


def of_rows(rows: Sequence[Any], sized: Sequence[str] = ()) -> Account:
    """An account from its counts by cell and place."""
    places = Counter[str]()
    for row in rows:
        places[row["place"]] += row["events"]
    starts = sorted({row["cell"] for row in rows})
    at = [bisect_left(starts, row["cell"]) for row in rows]

    def by_cell(name: str, kind: str, add: np.ufunc, empty: Any) -> Numbers:
        found = np.full(len(starts), empty, dtype=kind)
        add.at(found, at, np.array([row[name] for row in rows], dtype=kind))
        return found

    return Account(
        places=places,
        starts=starts,
        events=by_cell("events", "int64", np.add, 0),
        scale={name: by_cell(f"scale {name}", "float64", np.add, 0.0) for name in sized},
        newest=by_cell("newest", "int64", np.maximum, -1),
        differing=by_cell("differing", "bool", np.logical_or, False),
    )


def place(topic: Topic, cut: Cut) -> Column:
    """Where a record is accounted for."""
    time, word = F.unix_micros(topic.event_time), F.col("_fate")
    word = F.when((word == fates.IN_FLIGHT) & (time <= cut.last.watermark * 1000), fates.LATE).otherwise(word)
    word = F.when((word == fates.ACCEPTED) & over(topic, cut, every=True), fates.LATE).otherwise(word)
    word = F.when(~F.col("_counted") & (word != fates.ACCEPTED), fates.DUPLICATE).otherwise(word)
    word = F.when(word.isin(fates.ACCEPTED, fates.LATE) & F.col("_filtered"), "filtered").otherwise(word)
    return F.when(word == fates.ACCEPTED, "aggregated").otherwise(word)


def differing(topic: Topic, cut: Cut) -> Column:
    """Whether the layers differ by an event, in one window at least; a session that split it off is another matter."""
    one_sided = F.col("_counted") != (F.col("_fate") == fates.ACCEPTED)
    return (one_sided | (F.col("_counted") & over(topic, cut, every=False))) & ~F.col("_filtered")


def over(topic: Topic, cut: Cut, *, every: bool) -> Column:
    """Whether every window of an event, or its first, was over before its micro-batch, where that is the rule."""
    if cut.late_rule != "window":
        return F.lit(False)
    over_at = kind_of(cut.pipeline).over_at(F.unix_micros(topic.event_time), every=every)
    return F.coalesce(over_at <= F.col("_late_at") * 1000, F.lit(False))


def supports(cut: Cut, accounts: Sequence[Account], ends: Mapping[int, int]) -> dict[int, list[Support]]:
    """What the rows of each slot are made of, by topic; `ends` says how far the windows of a slot reach."""
    kind = kind_of(cut.pipeline)
    made_of = {slot: kind.made_of(slot, end) for slot, end in ends.items()}
    return {
        slot: [one.within(*times) for one, times in zip(accounts, theirs, strict=True)]
        for slot, theirs in made_of.items()
    }


def conservation(cut: Cut, accounts: Sequence[tuple[Sequence[Range], Account]]) -> Conservation:
    """Where each record of the compared event times is, and how many there are by another reader's count.

    That reader counts in the files of archive and quarantine; the places are those that the replay gave each event, in
    Spark. A refused record often has no event time: it belongs to the range in which the broker took it.
    """
    records, places, ingested = 0, Counter[str](), ingests(cut)
    for topic, (ranges, account) in zip(cut.pipeline.reads, accounts, strict=True):
        version = cut.stated.versions[topic.name]
        archived = delta.table(archive.path(topic), version)
        rows = columns(archived, topic, ["_ingest"], topic.event_time, ranges, who=cut.pipeline.name)
        records += sum(batch.num_rows for batch in rows)
        refused = delta.table(archive.quarantine_path(topic))
        rows = columns(refused, topic, ["_ingest"], "_broker_time", ranges, who=cut.pipeline.name)
        places["quarantined"] += sum(int((batch.column(0).to_numpy() <= ingested[topic.name]).sum()) for batch in rows)
        places.update(account.places)
    return Conservation(records=records + places["quarantined"], places=places)


def ingests(cut: Cut) -> dict[str, int]:
    """The number of each topic's last ingest that the compared batch table was stated from."""
    last = {}
    for topic, version in cut.stated.versions.items():
        numbers = [one.seq for one in runs.ingest_history(topic) if one.delta_version <= version]
        last[topic] = max(numbers, default=-1)
    return last
