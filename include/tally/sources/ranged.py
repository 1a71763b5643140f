"""Rows whose instant lies in one of many ranges. The ranges are data: a plan is as long for ten thousand as for ten.

A handful is compared with literals, which Delta skips files by. More of them are laid over a grid of buckets and
joined; the literals then are those of a few coarse ranges around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis
from tally.catalog.ranges import Range, merge

# Each literal range is four comparisons a row and some lines of each of a plan's many scans: with eight, planning alone
# took a second longer. Fewer would have ranges that are a year apart read the year between them.
FEW = 4
# Buckets over all of the ranges: a range lies in few of them, and a bucket meets few ranges. A tenth of a megabyte.
BUCKETS = 4096


def in_ranges(rows: DataFrame, column: str, ranges: Sequence[Range]) -> DataFrame:
    """The rows whose time column lies in one of the ranges (milliseconds, half-open)."""
    wanted = merge(ranges)
    near = rows.where(near_ranges(column, wanted, dated="_date" in rows.columns))
    if len(wanted) <= FEW:
        return near
    return near.join(*on_ranges(rows.sparkSession, column, wanted), "left_semi")


def not_in_ranges(rows: DataFrame, column: str, ranges: Sequence[Range]) -> DataFrame:
    """The rows whose time column lies in none of the ranges."""
    wanted = merge(ranges)
    if len(wanted) <= FEW:
        return rows.where(~near_ranges(column, wanted, dated=False))
    return rows.join(*on_ranges(rows.sparkSession, column, wanted), "left_anti")


def near_ranges(column: str, ranges: Sequence[Range], *, dated: bool) -> Column:
    """Whether a time lies in one of a few ranges around these; `dated` asks `_date` too, which skips whole days."""

    def one(start: int, end: int) -> Column:
        inside = (F.col(column) >= instant(start)) & (F.col(column) < instant(end))
        if not dated:
            return inside
        first, last = from_millis(start).date(), from_millis(end - 1).date()
        return (F.col("_date") >= F.lit(first)) & (F.col("_date") <= F.lit(last)) & inside

    return reduce(lambda a, b: a | b, (one(*r) for r in merge(ranges, most=FEW)), F.lit(False))


def instant(ms: int) -> Column:
    """A literal instant that Delta can prune files by."""
    return F.lit(from_millis(ms))


def on_ranges(spark: SparkSession, column: str, ranges: Sequence[Range]) -> tuple[DataFrame, Column]:
    """The ranges as a frame to join with, and when a row's time lies in one of them."""
    bounds = np.array(ranges, dtype="int64") * 1000
    width = max(1, int(bounds[-1, 1] - bounds[0, 0]) // BUCKETS)
    frame = bucketed(spark, bounds, width)
    time = F.unix_micros(column)
    bucket = F.call_function("div", time - F.lit(int(bounds[0, 0])), F.lit(width))  # `/` would be a DOUBLE
    same = (bucket == F.col("_range_bucket")) & (time >= F.col("_range_from")) & (time < F.col("_range_to"))
    return F.broadcast(frame), same


def bucketed(spark: SparkSession, bounds: np.ndarray[tuple[int, int], np.dtype[np.int64]], width: int) -> DataFrame:
    """Each range once for each bucket that it lies in, counted from the first range's start."""
    first = (bounds[:, 0] - bounds[0, 0]) // width
    times = (bounds[:, 1] - 1 - bounds[0, 0]) // width - first + 1
    of = np.repeat(np.arange(len(bounds)), times)
    inside = np.arange(len(of)) - np.repeat(np.cumsum(times) - times, times)
    columns = {"_range_bucket": first[of] + inside, "_range_from": bounds[of, 0], "_range_to": bounds[of, 1]}
    return spark.createDataFrame(pa.table(columns))
