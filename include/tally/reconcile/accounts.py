"""What became of the archived events of a comparison, by cell of the grid of windows: one pass for each topic."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.duration import millis
from tally.catalog.ranges import Range, ceil, events_of, floor, merge
from tally.catalog.spec import Topic
from tally.reconcile import fate, replay
from tally.reconcile.cut import Cut

FLOATING = ("DOUBLE", "FLOAT")
Numbers = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Support:
    """What stands behind some rows: how many events, their size, the last ingest, and whether the layers differ."""

    events: int = 0
    scale: float = 0.0
    newest: int = -1
    differing: bool = False


@dataclass(frozen=True, kw_only=True)
class Account:
    """One topic's events: where each is accounted for; and by cell of event time, in order, what lies in it."""

    places: Mapping[str, int]
    starts: Sequence[int]
    events: Numbers
    scale: Numbers  # the sum of the sizes of the events' floating columns, the largest column's
    newest: Numbers  # the last ingest that had a say in them
    differing: Numbers  # whether one layer counts an event that the other doesn't

    def within(self, start: int, end: int) -> Support:
        """What the cells of a range of event time hold."""
        mine = slice(bisect_left(self.starts, start), bisect_left(self.starts, end))
        if mine.start >= mine.stop:
            return Support()
        return Support(
            events=int(self.events[mine].sum()),
            scale=float(self.scale[mine].sum()),
            newest=int(self.newest[mine].max()),
            differing=bool(self.differing[mine].any()),
        )


def account(
    spark: SparkSession, cut: Cut, ranges: Sequence[Range], ends: Mapping[int, int]
) -> list[tuple[list[Range], Account]]:
    """What became of each archived event that windows of the ranges are made of: by topic, with the event times.

    `ends` says how far the windows of a slot reach: a session may be longer than its range.
    """
    if not ranges:
        return [([], of_rows([])) for _ in cut.pipeline.reads]
    wanted = replay.event_ranges(cut, ranges)
    if replay.is_session(cut):
        step = millis(cut.pipeline.window.step)
        wide = [(start - step, end + step) for start, end in wanted[0]]
        wanted = [merge([*wide, *((slot - step, ceil(end + step, step)) for slot, end in ends.items())])]
    parts = zip(cut.pipeline.reads, wanted, strict=True)
    return [(times, counted(replay.tagged_events(spark, cut, topic, times), topic, cut)) for topic, times in parts]


def counted(events: DataFrame, topic: Topic, cut: Cut) -> Account:
    time, step = F.unix_millis(topic.event_time), F.lit(millis(cut.pipeline.window.step))
    sizes = [F.sum(F.abs(field.name)) for field in topic.schema if field.type in FLOATING]
    scale = reduce(lambda a, b: F.greatest(a, b), (F.coalesce(size, F.lit(0.0)) for size in sizes), F.lit(0.0))
    rows = (
        events.groupBy((time - F.pmod(time, step)).alias("cell"), place(topic, cut).alias("place"))
        .agg(
            F.count("*").alias("events"),
            scale.alias("scale"),
            F.max("_newest").alias("newest"),
            F.bool_or(differing(topic, cut)).alias("differing"),
        )
        .collect()
    )
    return of_rows(rows)


def of_rows(rows: Sequence[Any]) -> Account:
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
        scale=by_cell("scale", "float64", np.add, 0.0),
        newest=by_cell("newest", "int64", np.maximum, -1),
        differing=by_cell("differing", "bool", np.logical_or, False),
    )


def place(topic: Topic, cut: Cut) -> Column:
    """Where a record is accounted for."""
    time, word = F.unix_micros(topic.event_time), F.col("_fate")
    word = F.when((word == fate.IN_FLIGHT) & (time <= cut.last.watermark * 1000), fate.LATE).otherwise(word)
    word = F.when((word == fate.ACCEPTED) & over(topic, cut, every=True), fate.LATE).otherwise(word)
    word = F.when(~F.col("_counted") & (word != fate.ACCEPTED), fate.DUPLICATE).otherwise(word)
    word = F.when(word.isin(fate.ACCEPTED, fate.LATE) & F.col("_filtered"), "filtered").otherwise(word)
    return F.when(word == fate.ACCEPTED, "aggregated").otherwise(word)


def differing(topic: Topic, cut: Cut) -> Column:
    """Whether the layers differ by an event, in one window at least; a session that split it off is another matter."""
    one_sided = F.col("_counted") != (F.col("_fate") == fate.ACCEPTED)
    return (one_sided | (F.col("_counted") & over(topic, cut, every=False))) & ~F.col("_filtered")


def over(topic: Topic, cut: Cut, *, every: bool) -> Column:
    """Whether every window of an event, or its first, was over before its micro-batch, where that is the rule."""
    window = cut.pipeline.window
    if cut.late_rule != "window" or topic != cut.pipeline.reads[0]:
        return F.lit(False)
    time, slide, size = F.unix_micros(topic.event_time), millis(window.slide) * 1000, millis(window.size) * 1000
    newest = time if window.kind == "session" else time - F.pmod(time, F.lit(slide))
    # Of windows that overlap, the oldest that an event is in is over first.
    earlier = F.lit(0) if every or window.kind == "session" else F.floor((size - 1 - (time - newest)) / slide) * slide
    return F.coalesce(newest - earlier + size <= F.col("_late_at") * 1000, F.lit(False))


def supports(cut: Cut, accounts: Sequence[Account], ends: Mapping[int, int]) -> dict[int, list[Support]]:
    """What the rows of each slot are made of, by topic; `ends` says how far the windows of a slot reach."""
    pipeline, step = cut.pipeline, millis(cut.pipeline.window.step)

    def events(slot: int, end: int, at: int) -> Range:
        if replay.is_session(cut):  # what came a gap before may have joined it to an earlier one
            return slot - step, ceil(end + step, step)
        start, last = events_of((slot, slot + step), pipeline, first=at == 0)
        return floor(start, step), ceil(last, step)

    return {slot: [one.within(*events(slot, end, at)) for at, one in enumerate(accounts)] for slot, end in ends.items()}
