"""How far ranges of time must be widened so that no session is cut: one that crosses an edge is taken in whole."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally.catalog.ranges import Range, ceil, merge

# Sessions are first looked for so many gaps around a range; it doubles until every one found is whole.
FIRST_GAPS = 8


@dataclass(frozen=True, kw_only=True)
class Cells:
    """Sessions by the cell of the grid of gaps that they start in: the last end of each cell's, and of all so far."""

    gap: int
    starts: list[int]
    ends: list[int]
    reached: list[int]

    @staticmethod
    def of(rows: DataFrame, gap: int) -> Cells:
        start, end = F.unix_millis("window_start"), F.ceil(F.unix_micros("window_end") / F.lit(1000))
        cell = (start - F.pmod(start, F.lit(gap))).alias("cell")
        return Cells.made({row[0]: int(row[1]) for row in rows.groupBy(cell).agg(F.max(end)).collect()}, gap)

    @staticmethod
    def made(last_ends: dict[int, int], gap: int) -> Cells:
        """From the last end of each cell's sessions."""
        starts = sorted(last_ends)
        ends = [last_ends[start] for start in starts]
        return Cells(gap=gap, starts=starts, ends=ends, reached=list(accumulate(ends, max)))

    def met_by(self, wanted: Range) -> Range:
        """The range, widened to hold every session that meets it; it begins and ends on the grid."""
        first, last = wanted
        earliest, after = bisect_right(self.reached, wanted[0]), bisect_left(self.starts, wanted[1])
        if earliest < after:
            first, last = min(first, self.starts[earliest]), max(last, self.reached[after - 1])
        return first - first % self.gap, ceil(last, self.gap)

    def last_end(self, start: int, end: int) -> int:
        """The last end of the sessions that start in a range."""
        return max(self.ends[bisect_left(self.starts, start) : bisect_left(self.starts, end)], default=end)


def whole(
    ranges: Sequence[Range], gap: int, extent: Range, found_in: Callable[[Sequence[Range]], Cells]
) -> tuple[list[Range], list[Range]]:
    """(starts, events): the starts of every session that meets a range, and the events that hold these whole.

    `extent` is the oldest and newest event time that there is, and `found_in` gives the sessions of the events of some
    ranges. All ranges are widened together: there are as many passes as the longest session needs.
    """
    oldest, newest = extent
    read = merge((start - FIRST_GAPS * gap, end + FIRST_GAPS * gap) for start, end in ranges)
    while True:
        cells = found_in(read)
        starts = merge(cells.met_by(wanted) for wanted in merge(ranges))
        # What begins just where a session ends goes on with it: that instant is read too.
        needed = merge((a - gap, max(cells.last_end(a, b) + 1, b + gap)) for a, b in starts)
        # Past the archive's own ends there is nothing to see.
        there = [(max(a, oldest), min(b, newest + 1)) for a, b in needed]
        short = [part for part in there if part[0] < part[1] and not inside(read, part)]
        if not short:
            return starts, read
        read = merge([*read, *(widened(read, part) for part in short)])


def inside(ranges: Sequence[Range], wanted: Range) -> bool:
    """Whether one of the merged ranges holds all of the wanted one."""
    at = bisect_right(ranges, (wanted[0], float("inf"))) - 1
    return at >= 0 and wanted[1] <= ranges[at][1]


def widened(ranges: Sequence[Range], wanted: Range) -> Range:
    """What must be read around a part that is not whole: as much again as is read there already."""
    at = max(0, bisect_right(ranges, (wanted[0], float("inf"))) - 1)
    length = ranges[at][1] - ranges[at][0]
    return wanted[0] - length, wanted[1] + length
