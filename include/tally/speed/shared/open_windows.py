"""What a pipeline's open windows hold so far, added up, in memory; the inbox has all of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Key = tuple[Hashable, ...]
# What is open is put together again once a quarter of it has changed, and so many rows: a change is moved a few times.
PARTS, FEWEST = 4, 1_000
PLAIN = {pa.types.is_timestamp: pa.int64(), pa.types.is_date32: pa.int32(), pa.types.is_string: pa.binary()}


class OpenWindows:
    """Totals by group; `window` names the group column that is the window, with its start and end.

    What changes lies behind what was there, which is put together again now and then: a micro-batch costs what it
    changes, however much is open.
    """

    def __init__(self, groups: Sequence[str], window: str) -> None:
        self.groups, self.window = tuple(groups), window
        self.settled: pa.Table | None = None
        self.changed: pa.Table | None = None  # newer rows: of a group, the newest counts
        self.places: dict[Key, int] = {}  # the row of each group, counted through both
        self.ending: dict[int, list[Key]] = {}  # the groups of the windows that end then (microseconds)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def totals(self) -> pa.Table | None:
        """All that is open, a row a group."""
        self.settle()
        return self.settled

    def of(self, parts: pa.Table) -> pa.Table:
        """What is there of the groups of these parts, row by row; a row of nulls where there is nothing."""
        rows = np.fromiter((self.places.get(key, -1) for key in self.keys(parts)), np.int64, parts.num_rows)
        nothing = parts.schema.empty_table().take(pa.nulls(1, pa.int64()))
        if self.settled is None or self.changed is None:
            return nothing.take(np.zeros(len(rows), dtype=np.int64))
        older = (rows >= 0) & (rows < self.settled.num_rows)
        newer = rows >= self.settled.num_rows
        found = [self.settled.take(rows[older]), self.changed.take(rows[newer] - self.settled.num_rows), nothing]
        order = np.full(len(rows), older.sum() + newer.sum(), dtype=np.int64)
        order[older] = np.arange(older.sum())
        order[newer] = older.sum() + np.arange(newer.sum())
        return pa.concat_tables(found).combine_chunks().take(order)

    def put(self, totals: pa.Table) -> None:
        """Take these in the place of what was there of their groups."""
        if self.settled is None or self.changed is None:
            self.settled = self.changed = totals.schema.empty_table()
        first = self.settled.num_rows + self.changed.num_rows
        for at, (key, end) in enumerate(zip(self.keys(totals), self.ends(totals), strict=True), first):
            if key not in self.places:
                self.ending.setdefault(end, []).append(key)
            self.places[key] = at
        self.changed = pa.concat_tables([self.changed, totals]).combine_chunks()
        if self.changed.num_rows > max(FEWEST, self.settled.num_rows // PARTS):
            self.settle()

    def close(self, watermark: int) -> None:
        """Let go of the windows that are over: no event is added to them any more."""
        for end in [end for end in self.ending if end <= watermark * 1000]:
            for key in self.ending.pop(end):
                del self.places[key]
        if self.settled is not None and self.settled.num_rows > max(FEWEST, 2 * len(self)):
            self.settle()

    def settle(self) -> None:
        """Put together what is open, a row a group, and nothing else."""
        if self.settled is None or self.changed is None:
            return
        rows = np.fromiter(self.places.values(), np.int64, len(self))
        both = pa.concat_tables([self.settled, self.changed]).combine_chunks()
        self.settled, self.changed = both.take(rows).combine_chunks(), both.schema.empty_table()
        self.places = dict(zip(self.places, range(len(self)), strict=True))

    def restore(self, rows: Iterable[pa.Table], watermark: int) -> None:
        """Begin with what the inbox has, oldest first."""
        self.settled = self.changed = None
        self.places, self.ending = {}, {}
        for totals in rows:
            self.put(open_ones(totals, self.window, watermark))

    def ends(self, rows: pa.Table) -> list[int]:
        """When each row's window ends, in microseconds."""
        ends: list[int] = pc.cast(pc.struct_field(rows[self.window], "end"), pa.int64()).to_pylist()
        return ends

    def keys(self, rows: pa.Table) -> Iterable[Key]:
        """What names each row's group; a value that is not itself (NaN) is one all the same."""
        columns = [pc.struct_field(rows[n], "end") if n == self.window else rows[n] for n in self.groups]
        yield from zip(*(map(hashable, values_of(column)) for column in columns), strict=True)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """A column's values, times as numbers and texts as bytes: Python has no year past 9999, no text of any bytes."""
    return list(column.cast(plain(column.type)).to_pylist())


def plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(plain(kind.value_type))
    for is_such, other in PLAIN.items():
        if is_such(kind):
            return other
    return kind


def hashable(value: object) -> Hashable:
    """A value of a column as one that finds its equals."""
    if isinstance(value, list | dict):
        return repr(value)
    return "not a number" if value != value else value


def open_ones(totals: pa.Table, window: str, watermark: int) -> pa.Table:
    """The groups of which the window ends after a watermark (milliseconds)."""
    ends = pc.struct_field(totals[window], "end")
    after = pa.scalar(watermark * 1000, pa.int64())
    return totals.filter(pc.greater(pc.cast(ends, pa.int64()), after))
