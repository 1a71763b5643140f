"""What a pipeline's open windows hold so far, added up, in memory; the inbox has all of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Key = tuple[Hashable, ...]
PLAIN = {pa.types.is_timestamp: pa.int64(), pa.types.is_date32: pa.int32(), pa.types.is_string: pa.binary()}


class OpenWindows:
    """Totals by group; `window` names the group column that is the window, with its start and end."""

    def __init__(self, groups: Sequence[str], window: str) -> None:
        self.groups, self.window = tuple(groups), window
        self.totals: pa.Table | None = None
        self.places: dict[Key, int] = {}  # the row of each group

    def of(self, parts: pa.Table) -> pa.Table:
        """What is there of the groups of these parts, row by row; a row of nulls where there is nothing."""
        if self.totals is None:
            return parts.schema.empty_table().take(pa.nulls(parts.num_rows, pa.int64()))
        return self.totals.take(pa.array((self.places.get(key) for key in self.keys(parts)), pa.int64()))

    def put(self, totals: pa.Table) -> None:
        """Take these in the place of what was there of their groups."""
        if self.totals is None:
            self.hold(totals)
            return
        kept = np.ones(self.totals.num_rows, dtype=bool)
        kept[self.rows_of(totals)] = False
        self.hold(pa.concat_tables([self.totals.filter(pa.array(kept)), totals]))

    def close(self, watermark: int) -> None:
        """Let go of the windows that are over: no event is added to them any more."""
        if self.totals is not None:
            left = open_ones(self.totals, self.window, watermark)
            if left.num_rows < self.totals.num_rows:
                self.hold(left)

    def restore(self, rows: Iterable[pa.Table], watermark: int) -> None:
        """Begin with what the inbox has, oldest first."""
        self.totals = None
        for totals in rows:
            self.put(totals)
            self.close(watermark)

    def hold(self, totals: pa.Table) -> None:
        self.totals = totals.combine_chunks()
        self.places = {key: at for at, key in enumerate(self.keys(totals))}

    def rows_of(self, parts: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Where the groups of these parts are, those that are there."""
        found = (self.places.get(key) for key in self.keys(parts))
        return np.array([at for at in found if at is not None], dtype=np.int64)

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
