"""Puts events in the windows of the clock without Spark, as plain data that can be sent to its workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Microseconds from 1970: a window about such a time has no bound that a BIGINT lacks.
FARTHEST = 1 << 62
MOST_ROWS = 3_000_000
MOMENT = pa.timestamp("us", "UTC")
FIELDS = [pa.field("start", MOMENT), pa.field("end", MOMENT)]


@dataclass(frozen=True, kw_only=True)
class ClockWindows:
    """Windows of one size, a new one each step (microseconds), over the times in a column."""

    time: str
    size: int
    step: int

    def over(self, events: pa.Table) -> pa.Table:
        """The events with their `window`, once for each that they are in; what Spark would refuse is an error."""
        times = self.times(events)
        self.check_rows(len(times))
        newest, found = times - times % self.step, []
        for earlier in range(0, self.size, self.step):
            starts, inside = newest - earlier, events
            if self.size % self.step:  # the oldest window has some only
                there = times < starts + self.size
                starts, inside = starts[there], events.filter(pa.array(there))
            found.append(inside.append_column("window", self.beginning(starts)))
        return pa.concat_tables(found)

    @property
    def in_panes(self) -> bool:
        """Whether windows overlap, and each is made of whole steps."""
        return self.size > self.step and not self.size % self.step

    def over_newest(self, events: pa.Table) -> pa.Table:
        """The events with the newest `window` that they are in; those of one step are in the same windows."""
        times = self.times(events)
        return events.append_column("window", self.beginning(times - times % self.step))

    def spread(self, rows: pa.Table, window: str) -> pa.Table:
        """Rows of such newest windows, each once for every window that its events are in."""
        self.check_rows(rows.num_rows)
        start = pc.struct_field(rows[window], "start").cast(pa.int64()).to_numpy()
        at = rows.column_names.index(window)
        found = [rows.set_column(at, window, self.beginning(start - past)) for past in range(0, self.size, self.step)]
        return pa.concat_tables(found)

    def check_rows(self, count: int) -> None:
        """Refuse to write out more rows than fit in some hundred megabytes: Spark makes them one by one."""
        if count * (self.size // self.step) > MOST_ROWS:
            raise ArithmeticError("too many rows of overlapping windows")

    def times(self, events: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The times of events, in microseconds."""
        if events[self.time].null_count:
            raise ArithmeticError("an event without a time is in no window")
        times: np.ndarray[tuple[int], np.dtype[np.int64]] = events[self.time].cast(pa.int64()).to_numpy()
        if len(times) and max(-int(times.min()), int(times.max())) > FARTHEST:
            raise ArithmeticError("a window that begins or ends beyond all times")
        return times

    def beginning(self, starts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
        """The windows that begin then."""
        bounds = [pa.array(at, pa.int64()).cast(MOMENT) for at in (starts, starts + self.size)]
        return pa.StructArray.from_arrays(bounds, fields=FIELDS)
