"""How far a restatement must go, so that what it replaces is whole: sessions that cross an edge are taken in."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.batch.events import Versions, applied, archived, events, stated
from tally.catalog.duration import millis
from tally.catalog.ranges import Range, ceil, merge
from tally.catalog.spec import Pipeline
from tally.sources.ranged import in_ranges

# Sessions are first looked for so many gaps around a range; it doubles until every one found is whole.
FIRST_GAPS = 8


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The window starts that are restated, and their rows."""

    ranges: list[Range]
    rows: DataFrame


def scope(spark: SparkSession, pipeline: Pipeline, ranges: Sequence[Range], versions: Versions) -> Scope:
    """The rows of all windows starting in the ranges; sessions widen the ranges to where theirs begin and end."""
    if pipeline.window.kind != "session":
        return Scope(ranges=merge(ranges), rows=stated(spark, pipeline, ranges, versions))
    starts, around = session_scope(spark, pipeline, ranges, versions)
    rows = sessions(spark, pipeline, around, versions)
    return Scope(ranges=starts, rows=in_ranges(rows, "window_start", starts))


def sessions(spark: SparkSession, pipeline: Pipeline, around: Sequence[Range], versions: Versions) -> DataFrame:
    topic = pipeline.reads[0]
    return applied(pipeline, [events(spark, topic, around, versions[topic.name])])


def session_scope(
    spark: SparkSession, pipeline: Pipeline, ranges: Sequence[Range], versions: Versions
) -> tuple[list[Range], list[Range]]:
    """(starts, events): the starts of every session that meets a range, and the events that hold these whole.

    All ranges are widened together: there are as many passes as the longest session needs, not as there are ranges.
    """
    if not ranges:
        return [], []
    gap = millis(pipeline.window.size)
    oldest, newest = extent(spark, pipeline, versions)
    read = merge((start - FIRST_GAPS * gap, end + FIRST_GAPS * gap) for start, end in ranges)
    while True:
        cells = Cells.of(sessions(spark, pipeline, read, versions), gap)
        starts = merge(cells.met_by(wanted) for wanted in merge(ranges))
        needed = merge((a - gap, max(cells.last_end(a, b), b + gap)) for a, b in starts)
        # Past the archive's own ends there is nothing to see.
        there = [(max(a, oldest), min(b, newest + 1)) for a, b in needed]
        short = [part for part in there if part[0] < part[1] and not inside(read, part)]
        if not short:
            return starts, read
        read = merge([*read, *(widened(read, part) for part in short)])


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
        found = sorted((row[0], int(row[1])) for row in rows.groupBy(cell).agg(F.max(end)).collect())
        ends = [end for _, end in found]
        return Cells(gap=gap, starts=[cell for cell, _ in found], ends=ends, reached=list(accumulate(ends, max)))

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


def inside(ranges: Sequence[Range], wanted: Range) -> bool:
    """Whether one of the merged ranges holds all of the wanted one."""
    at = bisect_right(ranges, (wanted[0], float("inf"))) - 1
    return at >= 0 and wanted[1] <= ranges[at][1]


def widened(ranges: Sequence[Range], wanted: Range) -> Range:
    """What must be read around a part that is not whole: as much again as is read there already."""
    at = max(0, bisect_right(ranges, (wanted[0], float("inf"))) - 1)
    length = ranges[at][1] - ranges[at][0]
    return wanted[0] - length, wanted[1] + length


def extent(spark: SparkSession, pipeline: Pipeline, versions: Versions) -> Range:
    """The oldest and newest event time in the archive."""
    topic = pipeline.reads[0]
    time = F.unix_millis(topic.event_time)
    found = archived(spark, topic, versions[topic.name]).agg(F.min(time), F.max(time)).first()
    return (found[0], found[1]) if found is not None and found[0] is not None else (0, 0)
