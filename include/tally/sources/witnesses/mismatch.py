"""What an archive or a quarantine lost or gained, as a value; the very offsets at fault, where they can be told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tally.catalog.ranges import Range

MOST_LOOKED_INTO = 16  # mismatches of one look: each costs a query, and only where something is wrong
MOST_RANGES = 64  # of one mismatch


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Offsets of a partition whose rows are not what the commit that wrote them said."""

    topic: str
    place: str  # archive | quarantine
    partition: int
    first: int
    to: int
    seq: int  # the ingest at fault
    lost: int  # rows too few; below 0: too many; 0: as many, and others

    def __str__(self) -> str:
        what = f"lost {self.lost}" if self.lost > 0 else f"{-self.lost} too many" if self.lost else "content differs"
        where = f"topic {self.topic}, partition {self.partition}, offsets [{self.first}, {self.to})"
        return f"{where}: {what} ({self.place}, ingest {self.seq})"


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
