"""Which unique ids a topic's stream has lately seen, and so which events are copies: the first that it reads stays.

Copies that are further apart in event time than the lateness are two events, as they are for the batch. An event that
is not late is ahead of the watermark, so what lies the lateness behind that is no copy of any that may come. Nothing
else decides: the fate of an event can be told from its copies nearby, without what became of them. No Spark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tally.speed.shared.hashes import Hashes, Mask, among, hashes, short, together

# Those that are over are looked for when the watermark has come so many parts of the lateness further.
PARTS = 10
# Runs are put together until each is so many times the next: of a million ids some ten are left to look in.
STEP = 2
LEFT_OUT = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64())])
SEEN = ("_id", "_time")
Times = dict[Hashable, tuple[int, ...]]


@dataclass(frozen=True)
class Run:
    """Some ids with the event times of their copies (microseconds), in the order of their hashes."""

    hashes: Hashes
    seen: pa.Table

    @classmethod
    def of(cls, found: Hashes, seen: pa.Table) -> Run:
        order = np.argsort(found, kind="stable")
        return cls(found[order], seen.take(pa.array(order)).combine_chunks())

    def and_also(self, other: Run) -> Run:
        both = pa.concat_tables([self.seen, other.seen], promote_options="permissive")
        return Run.of(np.concatenate([self.hashes, other.hashes]), both)

    def after(self, over: int) -> Run:
        kept = self.seen["_time"].to_numpy() > over
        return self if kept.all() else Run(self.hashes[kept], self.seen.filter(pa.array(kept)).combine_chunks())

    def of_hashes(self, wanted: Hashes) -> pa.Table:
        """What has one of these hashes, which differ from each other."""
        first, last = (np.searchsorted(self.hashes, wanted, side) for side in ("left", "right"))
        many = last - first
        skipped = np.repeat(last - np.cumsum(many), many)
        return self.seen.take(pa.array(skipped + np.arange(many.sum())))


class Ids:
    """The ids of a topic of such a lateness (milliseconds), each with the event times of its copies (microseconds)."""

    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self.runs: list[Run] = []
        self.kind: pa.DataType = pa.null()  # of the ids
        self.swept = 0

    def __len__(self) -> int:
        return sum(len(run.hashes) for run in self.runs)

    def told_apart(self, events: pa.Table, watermark: int) -> tuple[pa.Table, pa.Table]:
        """Of a micro-batch's events, the places of late ones and of copies; and what of the others is to be put here.

        Events have `_partition`, `_offset`, `_id` and `_time` (microseconds).
        """
        rows = in_order(events)
        found = hashes(rows["_id"])
        late = rows["_time"].to_numpy() <= watermark * 1000
        out = late.copy()
        copied = np.flatnonzero(self.may_be_copies(found) & ~late)
        some = rows.select([*SEEN]).take(pa.array(copied))
        span, known, new = self.lateness * 1000, self.times(np.unique(found[copied])), Times()
        for at, one, time in zip(copied, some["_id"].to_pylist(), some["_time"].to_pylist(), strict=True):
            others = known.get(one, ()) + new.get(one, ())
            out[at] = any(abs(time - other) <= span for other in others)
            new[one] = (*new.get(one, ()), time)
        left_out = rows.filter(pa.array(out)).select(LEFT_OUT.names).cast(LEFT_OUT)
        return left_out, rows.filter(pa.array(~late)).select([*SEEN])

    def may_be_copies(self, found: Hashes) -> Mask:
        """Of which rows the hash of the id is another one's, too, or remembered: of most it is neither."""
        ordered = np.sort(found)
        again = [ordered[1:][ordered[1:] == ordered[:-1]]]
        return among(together([*again, *(ordered[among(run.hashes, ordered)] for run in self.runs)]), found)

    def times(self, wanted: Hashes) -> Times:
        """The times that are remembered of ids with these hashes, and maybe of others."""
        found = Times()
        for run in self.runs if len(wanted) else []:
            seen = run.of_hashes(wanted)
            for one, time in zip(seen["_id"].to_pylist(), seen["_time"].to_pylist(), strict=True):
                found[one] = (*found.get(one, ()), time)
        return found

    def short_hashes(self) -> Hashes:
        """Of all that is remembered, in order: what has none of them is no copy of it."""
        return together([np.empty(0, np.uint32), *(short(run.hashes) for run in self.runs)])

    def lasting(self, seen: pa.Table, watermark: int) -> pa.Table:
        """Of ids with their times those that an event may be a copy of once this is the watermark."""
        return seen.filter(pa.array(seen["_time"].to_numpy() > (watermark - self.lateness) * 1000))

    def put(self, seen: pa.Table) -> None:
        """Remember ids with their times."""
        if not seen.num_rows:
            return
        kind = seen.schema.field("_id").type
        if kind != self.kind:  # the topic's contract was changed
            self.kind, self.runs = kind, [run for run in self.runs if alike(run.seen.schema.field("_id").type, kind)]
        run = Run.of(hashes(seen["_id"]), seen.select([*SEEN]).combine_chunks())
        while self.runs and len(self.runs[-1].hashes) < STEP * len(run.hashes):
            run = self.runs.pop().and_also(run)
        self.runs.append(run)

    def restore(self, parts: Iterable[pa.Table], watermark: int) -> None:
        for seen in parts:
            self.put(seen)
        self.forget(watermark)

    def forget(self, watermark: int) -> None:
        """Let go of what no event can be a copy of any more, now and then: to look at all of it takes time."""
        if watermark - self.swept < self.lateness / PARTS:
            return
        self.swept, over = watermark, (watermark - self.lateness) * 1000
        kept = [run.after(over) for run in self.runs]
        self.runs = [run for run in kept if len(run.hashes)]

    def held(self) -> pa.Table:
        """All that is remembered, as `put` takes it."""
        none = pa.table({"_id": pa.array([], self.kind), "_time": pa.array([], pa.int64())})
        return pa.concat_tables([none, *(run.seen for run in self.runs)], promote_options="permissive")


def alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether ids of these types may be equal: no number is a text."""
    try:
        pa.unify_schemas([pa.schema([("_id", one)]), pa.schema([("_id", other)])], promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def in_order(events: pa.Table) -> pa.Table:
    """The events as they are read: by partition and offset."""
    partitions, offsets = events["_partition"].to_numpy(), events["_offset"].to_numpy()
    step, further = np.diff(partitions), np.diff(offsets) > 0
    if np.all((step > 0) | ((step == 0) & further)):
        return events
    return events.take(pa.array(np.lexsort((offsets, partitions))))
