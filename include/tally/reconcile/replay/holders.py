"""Which micro-batch held each offset, and which copy of an id the stream kept, by the ledger alone. No Spark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tally.base.duration import millis
from tally.catalog.ranges import merge
from tally.catalog.spec import Topic
from tally.control.ledger import NEAR
from tally.reconcile.cut import Cut
from tally.speed.shared.ids import Near

GAP, UNREAD = -1, -2
Numbers = np.ndarray[Any, np.dtype[Any]]
Held = tuple[int, int, int, int]  # of a copy: the number of its micro-batch, partition, offset, time (microseconds)
Intervals = dict[int, list[tuple[int, int, int]]]


def intervals(cut: Cut, topic: str) -> Intervals:
    """Per partition, the offset ranges of the micro-batches in the order of offsets: (from, to, index of the batch)."""
    found: Intervals = {}
    for index, batch in enumerate(cut.batches):
        for partition, (start, to) in batch.ranges.get(topic, {}).items():
            if to > start:
                found.setdefault(partition, []).append((start, to, index))
    return {partition: sorted(parts) for partition, parts in found.items()}


def doubled(parts: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The offsets that more than one micro-batch held."""
    twice, reached = [], 0
    for start, to, _ in sorted(parts):
        if start < reached:
            twice.append((start, min(to, reached)))
        reached = max(reached, to)
    return merge(twice)


def holders(cut: Cut, topic: str) -> Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """A function (partitions, offsets) -> the number of the first micro-batch that held each, and that of a second one.

    The first is GAP or UNREAD where none did, the second GAP.
    """
    parts_of = intervals(cut, topic)
    held = {p: tuple(np.array(column) for column in zip(*parts, strict=True)) for p, parts in parts_of.items()}
    twice = {p: (parts, doubled(parts)) for p, parts in parts_of.items()}
    reached = cut.last.ends(topic)

    def look_up(partitions: Numbers, offsets: Numbers) -> tuple[Numbers, Numbers]:
        out, again = np.full(len(offsets), UNREAD, dtype="int64"), np.full(len(offsets), GAP, dtype="int64")
        for partition, end in reached.items():
            out[(partitions == partition) & (offsets < end)] = GAP
        for partition, (starts, ends, numbers) in held.items():
            mine = partitions == partition
            at = offsets[mine]
            before = np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)
            inside = (at >= starts[before]) & (at < ends[before])
            found = np.where(inside, numbers[before], out[mine])
            second = np.full(len(at), GAP, dtype="int64")
            parts, ranges = twice[partition]
            for start, end in ranges:
                for place in np.flatnonzero((at >= start) & (at < end)):
                    both = sorted(number for a, b, number in parts if a <= at[place] < b)
                    found[place], second[place] = both[:2]
            out[mine], again[mine] = found, second
        return out, again

    return look_up


def late_marks(cut: Cut) -> Numbers:
    """What decided in each micro-batch which events are late, in milliseconds."""
    return np.array([batch.late_watermark for batch in cut.batches], dtype="int64")


def repeated(cut: Cut, topic: Topic) -> Callable[[Iterable[Held]], list[tuple[int, int, bool]]]:
    """A function of the accepted copies of one id -> partition and offset of each, and whether the stream left it out.

    The first copy holds an id until the watermark passes its time + lateness; in a shared stream, each copy those that
    are read after it and lie within the lateness of it.
    """
    delay, ends = millis(topic.lateness) * 1000, [batch.watermark * 1000 for batch in cut.batches]
    read: list[Mapping[int, int]] = [
        {p: at for at, p in enumerate(batch.ranges.get(topic.name, {}))} for batch in cut.batches
    ]

    near = [batch.ids == NEAR for batch in cut.batches]

    def follow(copies: Iterable[Held]) -> list[tuple[int, int, bool]]:
        found, free_from, times = [], -1, Near(delay)
        # As the stream met them.
        for index, partition, offset, time in sorted(
            copies, key=lambda copy: (copy[0], read[copy[0]][copy[1]], copy[2])
        ):
            again = times.has(0, time) if near[index] else index < free_from
            found.append((partition, offset, again))
            times.put(0, time)
            if index >= free_from:
                free_from = max(index, bisect_left(ends, time + delay)) + 1
        return found

    return follow
