"""Which unique ids a topic's stream has lately seen, and so which events are copies: the first that it reads stays.

Copies that are further apart in event time than the lateness are two events, as they are for the batch. An event that
is not late is ahead of the watermark, so what lies the lateness behind that is no copy of any that may come. Nothing
else decides: the fate of an event can be told from its copies nearby, without what became of them. No Spark.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tally.speed.shared.hashes import Hashes, Mask, among, hashes, short, together

# Those that are over are looked for when the watermark has come so many parts of the lateness further.
PARTS = 10
# Runs are put together until each is so many times the next: of a million ids some ten are left to look in.
STEP = 2
LEFT_OUT = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64())])
SEEN = ("_id", "_time")
# Each DECIMAL and each whole number has its digits in this.
NUMBER = pa.decimal256(76, 38)
# In what is kept of ids, which column of the events they are.
OF = b"of"


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
        return Run.of(np.concatenate([self.hashes, other.hashes]), whole([self.seen, other.seen]))

    def after(self, over: int) -> Run:
        kept = self.seen["_time"].to_numpy() > over
        return self if kept.all() else Run(self.hashes[kept], self.seen.filter(pa.array(kept)).combine_chunks())

    def of_hashes(self, wanted: Hashes) -> pa.Table:
        """What has one of these hashes, which differ from each other."""
        first, last = (np.searchsorted(self.hashes, wanted, side) for side in ("left", "right"))
        many = last - first
        skipped = np.repeat(last - np.cumsum(many), many)
        return self.seen.take(pa.array(skipped + np.arange(many.sum())))


@dataclass(frozen=True)
class Near:
    """Times of ids, by which others are found that are no further from one than a span: a look takes the same of many.

    Those of an id in one slot, a span long, are all near each other: of these the first and the last tell of all.
    """

    span: int
    slots: dict[tuple[Hashable, int], tuple[int, int]] = field(default_factory=dict)

    def put(self, one: Hashable, time: int) -> None:
        slot = (one, time // max(self.span, 1))
        first, last = self.slots.get(slot, (time, time))
        self.slots[slot] = min(first, time), max(last, time)

    def has(self, one: Hashable, time: int) -> bool:
        at = time // max(self.span, 1)
        if (one, at) in self.slots:
            return True
        before, after = self.slots.get((one, at - 1)), self.slots.get((one, at + 1))
        return (before is not None and time - before[1] <= self.span) or (
            after is not None and after[0] - time <= self.span
        )


class Ids:
    """The ids of a topic of such a lateness (milliseconds), each with the event times of its copies (microseconds).

    Of which column of the events they are is kept with them: what the inbox has of another one tells of no copy.
    """

    def __init__(self, lateness: int, of: str = "") -> None:
        self.lateness, self.of = lateness, of
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
        near = self.near(np.unique(found[copied]))
        for at, one, time in zip(copied, some["_id"].to_pylist(), some["_time"].to_pylist(), strict=True):
            out[at] = near.has(one, time)
            near.put(one, time)
        left_out = rows.filter(pa.array(out)).select(LEFT_OUT.names).cast(LEFT_OUT)
        return left_out, rows.filter(pa.array(~late)).select([*SEEN])

    def may_be_copies(self, found: Hashes) -> Mask:
        """Of which rows the hash of the id is another one's, too, or remembered: of most it is neither."""
        ordered = np.sort(found)
        again = [ordered[1:][ordered[1:] == ordered[:-1]]]
        return among(together([*again, *(ordered[among(run.hashes, ordered)] for run in self.runs)]), found)

    def near(self, wanted: Hashes) -> Near:
        """The times that are remembered of ids with these hashes, and maybe of others."""
        found = Near(self.lateness * 1000)
        for run in self.runs if len(wanted) else []:
            seen = run.of_hashes(wanted)
            for one, time in zip(seen["_id"].to_pylist(), seen["_time"].to_pylist(), strict=True):
                found.put(one, time)
        return found

    def short_hashes(self) -> Hashes:
        """Of all that is remembered, in order: what has none of them is no copy of it."""
        return together([np.empty(0, np.uint32), *(short(run.hashes) for run in self.runs)])

    def lasting(self, seen: pa.Table, watermark: int) -> pa.Table:
        """Of ids with their times those that an event may be a copy of once this is the watermark."""
        return self.named(seen.filter(pa.array(seen["_time"].to_numpy() > (watermark - self.lateness) * 1000)))

    def named(self, seen: pa.Table) -> pa.Table:
        return seen.replace_schema_metadata({OF: self.of.encode()})

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
            if (seen.schema.metadata or {}).get(OF, self.of.encode()) == self.of.encode():
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
        return self.named(whole([none, *(run.seen for run in self.runs)]))


def alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether ids of these types may be equal: no number is a text, and no text is bytes."""
    return any(is_such(one) and is_such(other) for is_such in (is_number, is_text, is_bytes))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def whole(some: Sequence[pa.Table]) -> pa.Table:
    """Ids with their times as one table, of types that may be equal."""
    try:
        return pa.concat_tables(some, promote_options="permissive")
    except pa.ArrowInvalid:  # no DECIMAL that Arrow makes of two of these has their digits
        wide = [one.set_column(0, "_id", one["_id"].cast(NUMBER)) for one in some]
        return pa.concat_tables(wide, promote_options="permissive")


def in_order(events: pa.Table) -> pa.Table:
    """The events as they are read: by partition and offset."""
    partitions, offsets = events["_partition"].to_numpy(), events["_offset"].to_numpy()
    step, further = np.diff(partitions), np.diff(offsets) > 0
    if np.all((step > 0) | ((step == 0) & further)):
        return events
    return events.take(pa.array(np.lexsort((offsets, partitions))))
