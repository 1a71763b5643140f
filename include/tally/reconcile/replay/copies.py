"""The event times around some ranges at which copies lie that decide what became of the events inside. No Spark.

For the batch, copies of an id that are further apart than the lateness are two events. The stream holds an id until its
watermark passes the first copy's time and the lateness: the further it was behind, the further away that copy may lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tally.base.duration import millis
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Topic
from tally.control.ledger import NEAR
from tally.lake import delta
from tally.reconcile.cut import Cut
from tally.reconcile.replay import holders
from tally.sources import archive
from tally.sources.columns import columns

Numbers = np.ndarray[tuple[int], np.dtype[Any]]
Known = dict[int, tuple[Numbers, ...]]  # by partition: from and to of the micro-batches' offsets, and their numbers
PLACE = ("_partition", "_offset")


def around(cut: Cut, topic: Topic, ranges: Sequence[Range]) -> list[Range]:
    """The ranges, widened to all copies that the batch or the stream may have seen together with an event inside."""
    if not topic.unique:
        return merge(ranges)
    reach = millis(topic.lateness)
    near = merge((start - reach, end + reach) for start, end in ranges)
    return merge([*near, *held(cut, topic, near)])


def held(cut: Cut, topic: Topic, ranges: Sequence[Range]) -> Iterator[Range]:
    """For the micro-batches that took events of these times: the times of which the stream may have held ids then.

    Of a shared stream, none: of its copies only those decide that lie nearby.
    """
    if all(batch.ids == NEAR for batch in cut.batches):
        return
    reach = millis(topic.lateness)
    late = np.array([batch.late_watermark for batch in cut.batches], dtype="int64")
    # What a micro-batch saw shows in the next one's watermark.
    newest = np.array([batch.watermark for batch in (*cut.batches[1:], cut.last)], dtype="int64")
    parts = holders.intervals(cut, topic.name).items()
    known: Known = {partition: tuple(map(np.array, zip(*some, strict=True))) for partition, some in parts}
    found: set[int] = set()
    for rows in places(cut, topic, ranges):
        partitions, offsets, times = (rows.column(at) for at in range(3))
        time = times.cast(pa.int64()).to_numpy(zero_copy_only=False)
        taken = batches_of(known, partitions.to_numpy(), offsets.to_numpy())
        inside = taken >= 0
        inside[inside] = time[inside] > late[taken[inside]] * 1000
        found.update(np.unique(taken[inside]).tolist())
    for at in found:
        yield int(late[at]) - reach, max(int(late[at]), int(newest[at])) + reach + 1


def batches_of(known: Known, partitions: Numbers, offsets: Numbers) -> Numbers:
    """The number of a micro-batch that held each offset; -1 where none is known."""
    found = np.full(len(offsets), -1, dtype="int64")
    for partition, (starts, ends, numbers) in known.items():
        mine = partitions == partition
        before = np.searchsorted(starts, offsets[mine], side="right") - 1
        inside = (before >= 0) & (offsets[mine] < ends[np.maximum(before, 0)])
        found[mine] = np.where(inside, numbers[np.maximum(before, 0)], -1)
    return found


def places(cut: Cut, topic: Topic, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    """Partition, offset and time of the archived events in ranges of event time."""
    table = delta.table(archive.path(topic), cut.stated.versions[topic.name])
    names = (*PLACE, topic.event_time)
    return columns(table, topic, names, topic.event_time, ranges, who=cut.pipeline.name)
