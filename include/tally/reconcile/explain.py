"""How many events stand behind the differences, by cause, and which cause each differing row has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.base.duration import millis
from tally.catalog.ranges import windows_of
from tally.catalog.spec import Topic
from tally.kinds import fates, kind_of
from tally.reconcile.causes import JOINED
from tally.reconcile.cut import Cut

SPLIT = "split"
Cells = dict[tuple[Any, ...], set[str]]


def causes(frame: DataFrame, topic: Topic, cut: Cut) -> DataFrame:
    """The events that one layer counts and the other doesn't, each once, with `_cause` and `_cell`."""
    kind, step = kind_of(cut.pipeline), F.lit(millis(cut.pipeline.window.step))
    cell = F.unix_millis(topic.event_time) - F.pmod(F.unix_millis(topic.event_time), step)
    counted, found, time = F.col("_counted"), F.col("_fate"), F.unix_micros(topic.event_time)
    # It is late too where any of its windows was over before its micro-batch.
    over = F.lit(cut.late_rule == "window") & (kind.over_at(time, every=False) <= late_at(cut))
    cause = (
        F.when(counted & found.isin(fates.ACCEPTED, fates.IN_FLIGHT) & over, fates.LATE)
        .when(counted & F.col("_split"), SPLIT)
        .when(~counted & (found == fates.ACCEPTED), fates.DUPLICATE)
        .when(counted & (found != fates.ACCEPTED), settled(found, time, cut))
    )
    marked = kind.with_split(frame, cut.history).withColumns({"_cause": cause, "_cell": cell})
    return marked.where("_cause IS NOT NULL AND NOT _filtered")


def late_at(cut: Cut) -> Column:
    """The watermark (microseconds) that decided, or will, whether an event is late."""
    return F.coalesce("_late_at", F.lit(cut.last.watermark)) * 1000


def settled(found: Column, time: Column, cut: Cut) -> Column:
    """An event that the stream has yet to read is late already where the watermark has passed its microsecond."""
    return F.when((found == fates.IN_FLIGHT) & (time <= cut.last.watermark * 1000), fates.LATE).otherwise(found)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Events by cause, the causes at each slot (and key, where the topic carries its columns), and events by slot."""

    events: Counter[str]
    cells: Cells
    by_slot: Counter[int]


def gather(frames: Sequence[DataFrame], cut: Cut, differing: Set[int]) -> Gathered:
    """What stands behind the differences; only events are counted that may be part of a slot that differs."""
    kind = kind_of(cut.pipeline)
    events, by_slot = Counter[str](), Counter[int]()
    cells: Cells = defaultdict(set)
    for at, (frame, topic) in enumerate(zip(frames, cut.pipeline.reads, strict=True)):
        keys = key_columns(cut, topic)
        found = causes(frame, topic, cut).groupBy("_cause", "_cell", *keys).count().collect()
        for row in found:
            near = slots(cut, row["_cell"], first=at == 0)
            if kind.concerned(near, differing):
                events[row["_cause"]] += row["count"]
                by_slot[row["_cell"]] += row["count"] if row["_cause"] != fates.IN_FLIGHT else 0
            key = tuple(row[name] for name in keys)
            for slot in near:
                cells[(slot, *key)].add(row["_cause"])
    return Gathered(events=events, cells=cells, by_slot=by_slot)


def key_columns(cut: Cut, topic: Topic) -> list[str]:
    """The key, where a single event carries all of it; a key made by the function or a join is not known per event."""
    known = kind_of(cut.pipeline).by_event and set(cut.pipeline.key) <= set(topic.columns)
    return list(cut.pipeline.key) if known else []


def slots(cut: Cut, cell: int, *, first: bool) -> range:
    """The slots whose windows an event in a cell may be part of."""
    step = millis(cut.pipeline.window.step)
    start, end = windows_of((cell, cell + step), cut.pipeline, first=first)
    return range(start, end, step)


def cause_of(row: dict[str, Any], cut: Cut, cells: Cells, keyed: bool) -> str:
    """The causes at a differing row's window and key, as one text; nothing where no event has one there."""
    key = tuple(row[name] for name in cut.pipeline.key) if keyed else ()
    slots = kind_of(cut.pipeline).causes_from(row["_slot"], row["_end"])
    found: set[str] = set().union(*(cells.get((slot, *key), set()) for slot in slots))
    return JOINED.join(sorted(found))
