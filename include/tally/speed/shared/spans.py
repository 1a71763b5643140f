"""Micro-batches in a row, taken in one go by a pipeline that missed them: each event by the watermark of its own.

A stream of a day has a hundred thousand, and one after the other they would take hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from tally.control.ledger import MicroBatch
from tally.speed import checkpoint

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bounds = dict[int, tuple[int, int]]
# Of each partition the ranges of offsets in order: their starts, their ends, and the numbers of their micro-batches.
Edges = dict[int, Numbers]


@dataclass(frozen=True)
class Span:
    """Some micro-batches of a topic, one following the other."""

    topic: str
    batches: Sequence[MicroBatch]

    @property
    def first(self) -> MicroBatch:
        return self.batches[0]

    @property
    def last(self) -> MicroBatch:
        return self.batches[-1]

    @property
    def ranges(self) -> Bounds:
        """The offsets of all of them, by partition."""
        found: Bounds = {}
        for batch in self.batches:
            for partition, (start, to) in batch.ranges[self.topic].items():
                found[partition] = found.get(partition, (start, to))[0], to
        return found

    @property
    def planned(self) -> checkpoint.Planned:
        """All of them as one."""
        last, first = self.last, self.first.batch
        return checkpoint.Planned(
            batch=last.batch, ranges={self.topic: self.ranges}, late_watermark=last.late_watermark,
            watermark=last.watermark, ids=last.ids, first=first if first < last.batch else None,
        )  # fmt: skip

    def late_at(self, partition: Column, offset: Column) -> Column:
        """What decided of the event at a place whether it was late: the watermark of its micro-batch, milliseconds."""
        edges, late = self.edges(), self.late()

        def looked_up(partitions: pa.Array, offsets: pa.Array) -> pa.Array:
            return pa.array(late[numbers(edges, partitions.to_numpy(), offsets.to_numpy())])

        looked_up.__annotations__ = {"partitions": pa.Array, "offsets": pa.Array, "return": pa.Array}
        found: Any = F.arrow_udf(looked_up, "bigint")
        return found(partition, offset)

    def late(self) -> Numbers:
        return np.array([batch.late_watermark for batch in self.batches], dtype=np.int64)

    def one_by_one(self, events: pa.Table) -> Iterator[tuple[MicroBatch, pa.Table]]:
        """Each micro-batch with those of the events, which have `_partition` and `_offset`, that it held."""
        held = numbers(self.edges(), events["_partition"].to_numpy(), events["_offset"].to_numpy())
        order = np.argsort(held, kind="stable")
        bounds = np.searchsorted(held[order], np.arange(len(self.batches) + 1))
        ordered = events.take(pa.array(order))
        for batch, start, to in zip(self.batches, bounds, bounds[1:], strict=False):
            yield batch, ordered.slice(start, to - start)

    def edges(self) -> Edges:
        found: dict[int, list[tuple[int, int, int]]] = {}
        for number, batch in enumerate(self.batches):
            for partition, (start, to) in batch.ranges[self.topic].items():
                if start < to:
                    found.setdefault(partition, []).append((start, to, number))
        return {p: np.array(rows, dtype=np.int64).T for p, rows in found.items()}


def numbers(edges: Edges, partitions: Numbers, offsets: Numbers) -> Numbers:
    """Which of its micro-batches held each place; -1: none."""
    out = np.full(len(offsets), -1, dtype=np.int64)
    for partition, (starts, ends, held) in edges.items():
        mine = partitions == partition
        at = offsets[mine]
        before = np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)
        out[mine] = np.where((at >= starts[before]) & (at < ends[before]), held[before], -1)
    return out


def spans(topic: str, batches: Sequence[MicroBatch], limit: int, ends: Sequence[int] = ()) -> Iterator[Span]:
    """Micro-batches in a row, cut where more than so many offsets would come together, and behind these numbers."""
    begin, size, cuts = 0, 0, set(ends)
    for at, batch in enumerate(batches):
        more = sum(to - start for start, to in batch.ranges[topic].values())
        if begin < at and (size + more > limit or batches[at - 1].batch in cuts):
            yield Span(topic, batches[begin:at])
            begin, size = at, 0
        size += more
    if begin < len(batches):
        yield Span(topic, batches[begin:])
