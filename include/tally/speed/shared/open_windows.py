"""What a pipeline's open windows hold so far, added up, in memory; the inbox has all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc


class OpenWindows:
    """Totals by group; `window` names the group column that is the window, with its start and end."""

    def __init__(self, groups: Sequence[str], window: str) -> None:
        self.groups, self.window = tuple(groups), window
        self.totals: pa.Table | None = None

    def of(self, parts: pa.Table) -> pa.Table:
        """What is there of the groups that these parts are of."""
        if self.totals is None:
            return parts.slice(0, 0)
        return self.compared("SEMI", self.totals, parts)

    def put(self, totals: pa.Table) -> None:
        """Take these in the place of what was there of their groups."""
        if self.totals is None:
            self.totals = totals
        else:
            self.totals = pa.concat_tables([self.compared("ANTI", self.totals, totals), totals])

    def close(self, watermark: int) -> None:
        """Let go of the windows that are over: no event is added to them any more."""
        if self.totals is not None:
            self.totals = open_ones(self.totals, self.window, watermark)

    def restore(self, rows: Iterable[pa.Table], watermark: int) -> None:
        """Begin with what the inbox has, oldest first."""
        self.totals = None
        for totals in rows:
            self.put(totals)
            self.close(watermark)

    def compared(self, how: str, left: pa.Table, right: pa.Table) -> pa.Table:
        """The rows of one table that have, or do not have, their group in the other; null and NaN equal themselves."""
        if not left.num_rows or not right.num_rows:
            return left if how == "ANTI" else left.slice(0, 0)
        same = " AND ".join(f'l."{name}" IS NOT DISTINCT FROM r."{name}"' for name in self.groups)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            numbers = pa.table({"_at": pa.array(range(left.num_rows), pa.int64())})
            connection.register("l_", pa.Table.from_arrays([*left.select(self.groups).columns, *numbers.columns],
                                                           names=[*self.groups, "_at"]))  # fmt: skip
            connection.register("r_", right.select(self.groups))
            found = connection.sql(f"SELECT l._at FROM l_ l {how} JOIN r_ r ON {same}").to_arrow_table()
        return left.take(found["_at"])


def open_ones(totals: pa.Table, window: str, watermark: int) -> pa.Table:
    """The groups of which the window ends after a watermark (milliseconds)."""
    ends = pc.struct_field(totals[window], "end")
    after = pa.scalar(watermark * 1000, pa.int64())
    return totals.filter(pc.greater(pc.cast(ends, pa.int64()), after))
