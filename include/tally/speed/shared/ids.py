"""Which unique ids a topic's stream has lately seen, and so which events are copies: the first that it reads stays.

Copies that are further apart in event time than the lateness are two events, as they are for the batch. An event that
is not late is ahead of the watermark, so what lies the lateness behind that is no copy of any that may come. Nothing
else decides: the fate of an event can be told from its copies nearby, without what became of them. No Spark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Those that are over are looked for when the watermark has come so many parts of the lateness further.
PARTS = 10
LEFT_OUT = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64())])


class Ids:
    """The ids of a topic of such a lateness (milliseconds), each with the event times of its copies (microseconds)."""

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self.times: dict[Hashable, tuple[int, ...]] = {}
        self.kind: pa.DataType = pa.null()  # of the ids
        self.swept = 0

    def told_apart(self, events: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
        """Of a micro-batch's events, the places of late ones and of copies; and what of the others is to be put here.

        Events have `_partition`, `_offset`, `_id` and `_time` (microseconds).
        """
        rows = events.sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        late = rows["_time"].to_numpy() <= watermark * 1000
        out = late.copy()
        copied = np.flatnonzero(self.may_be_copies(rows["_id"]) & ~late)
        some = rows.take(copied)
        span, new = self.lateness * 1000, dict[Hashable, tuple[int, ...]]()
        for at, one, time in zip(copied, some["_id"].to_pylist(), some["_time"].to_pylist(), strict=True):
            known = self.times.get(one, ()) + new.get(one, ())
            out[at] = any(abs(time - other) <= span for other in known)
            new[one] = (*new.get(one, ()), time)
        left_out = rows.filter(pa.array(out)).select(LEFT_OUT.names).cast(LEFT_OUT)
        return left_out, rows.filter(pa.array(~late)).select(["_id", "_time"])

    def may_be_copies(self, ids: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of which rows the id stands in another one, or is remembered: of most it is neither."""
        counted = pc.value_counts(ids)
        values = counted.field("values")
        again = set(values.filter(pc.greater(counted.field("counts"), 1)).to_pylist())
        again |= self.times.keys() & set(values.to_pylist())
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.is_in(ids, pa.array(list(again), ids.type)).to_numpy()
        return found

    def put(self, seen: pa.Table) -> None:
        """Remember ids with their times."""
        self.kind = seen.schema.field("_id").type
        ids, times = seen["_id"].to_pylist(), seen["_time"].to_pylist()
        new: dict[Hashable, tuple[int, ...]] = dict(zip(ids, zip(times, strict=True), strict=True))
        if len(new) == len(ids) and self.times.keys().isdisjoint(new):
            self.times.update(new)
            return
        for one, time in zip(ids, times, strict=True):
            self.times[one] = (*self.times.get(one, ()), time)

    def restore(self, parts: Iterable[pa.Table], watermark: int) -> None:
        for seen in parts:
            self.put(seen)
        self.forget(watermark)

    def forget(self, watermark: int) -> None:
        """Let go of what no event can be a copy of any more, now and then: to look at all of it takes time."""
        if watermark - self.swept < self.lateness / PARTS:
            return
        self.swept, over = watermark, (watermark - self.lateness) * 1000
        self.times = {
            one: kept for one, times in self.times.items() if (kept := tuple(time for time in times if time > over))
        }

    def held(self) -> pa.Table:
        """All that is remembered, as `put` takes it."""
        pairs = [(one, time) for one, times in self.times.items() for time in times]
        ids, times = zip(*pairs, strict=True) if pairs else ((), ())
        return pa.table({"_id": pa.array(ids, self.kind), "_time": pa.array(times, pa.int64())})
