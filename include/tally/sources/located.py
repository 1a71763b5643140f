"""Which offsets of a mismatch are lost or doubled, as far as those that are there in archive and quarantine tell."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tally.catalog.ranges import Range
from tally.sources.mismatch import Mismatch

MOST_LOOKED_INTO = 16  # mismatches of one look: each costs a query, and only where something is wrong
MOST_RANGES = 64  # of one mismatch


def located(found: list[Mismatch], rows: dict[str, DataFrame]) -> list[Mismatch]:
    """The same mismatches, each by the very offsets at fault where these are certain: as many as the rows at fault."""
    narrow: list[Mismatch] = []
    for at, one in enumerate(found):
        ranges = offsets_of(one, rows) if at < MOST_LOOKED_INTO and one.lost else []
        sizes = [end - start for start, end in ranges]
        if ranges and sum(sizes) == abs(one.lost):
            sign = 1 if one.lost > 0 else -1
            narrow += [replace(one, first=a, to=b, lost=sign * (b - a)) for a, b in ranges]
        else:
            narrow.append(one)
    return narrow


def offsets_of(one: Mismatch, rows: dict[str, DataFrame]) -> list[Range]:
    """The offsets without a row in either table, or those with two in the table at fault."""
    inside = (F.col("_partition") == one.partition) & (F.col("_offset") >= one.first) & (F.col("_offset") < one.to)
    if one.lost < 0:
        there = rows[one.place].where(inside).groupBy("_offset").count().where("count = 2")
        return [(row[0], row[0] + 1) for row in there.orderBy("_offset").limit(MOST_RANGES).collect()]
    both = rows["archive"].where(inside).select("_offset").union(rows["quarantine"].where(inside).select("_offset"))
    end = both.sparkSession.range(one.to, one.to + 1).select(F.col("id").alias("_offset"))
    offset = F.col("_offset")
    before = F.lag(offset, 1, one.first - 1).over(Window.orderBy("_offset"))
    holes = both.union(end).select((before + 1).alias("start"), offset.alias("end")).where("end > start")
    return [(row["start"], row["end"]) for row in holes.limit(MOST_RANGES).collect()]
