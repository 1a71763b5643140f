"""A manifest as a value: how many rows a commit wrote, where, and their checksums, per partition and cell of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally.catalog.ranges import Range
from tally.sources.witnesses.checksum import HOUR, summed, whole

# Hours in a cell: an hour, a day, 32 days, all of time (0). Each holds the ones before it whole.
GRAINS = (1, 24, 768, 0)
# Cells of one manifest: some 150 kB in its commit's entry of the log. Fewer would make the cells of a day that took
# late events from all of history coarse, and a verified hour would read a day.
MOST_CELLS = 2000
# Rows that are brought to this process at once to be made cells of: a few megabytes.
MOST_ROWS = 20_000
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sums:
    """Rows, their first and last offset, and their checksums' sums modulo 2^64: of what was decoded, and of bytes."""

    count: int = 0
    first: int = MASK
    last: int = -1
    rows: int = 0
    bytes: int = 0

    def plus(self, other: Sums) -> Sums:
        return Sums(
            self.count + other.count,
            min(self.first, other.first),
            max(self.last, other.last),
            (self.rows + other.rows) & MASK,
            (self.bytes + other.bytes) & MASK,
        )

    @classmethod
    def of(cls, row: Any) -> Sums:
        """From a row with the columns of checksum.SUMS."""
        rows, bytes_ = (((row[f"{name}_high"] << 32) + row[f"{name}_low"]) & MASK for name in ("rows", "bytes"))
        return cls(row["count"], row["first"], row["last"], rows, bytes_)


NONE = Sums()
Cell = tuple[int, int]  # a partition, and the number of the cell since 1970


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a commit wrote into one table, in cells of `grain` hours."""

    grain: int = 1
    cells: dict[Cell, Sums] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(sums.count for sums in self.cells.values())

    @property
    def partitions(self) -> dict[int, Sums]:
        found: dict[int, Sums] = {}
        for (partition, _), sums in self.cells.items():
            found[partition] = found.get(partition, NONE).plus(sums)
        return found

    @property
    def extent(self) -> Range | None:
        """The times that its cells lie between; None: all."""
        if not self.grain:
            return None
        numbers = [number for _, number in self.cells] or [0]
        return self.range_of(min(numbers))[0], self.range_of(max(numbers))[1]

    def range_of(self, number: int) -> Range:
        """The times of a cell."""
        size = self.grain * HOUR
        return number * size, (number + 1) * size

    def cell_of(self, hour: int) -> int:
        return hour // self.grain if self.grain else 0

    def at_most(self, most: int) -> Manifest:
        """The same in the finest cells of which there are no more than so many."""
        found = self
        for grain in GRAINS[GRAINS.index(self.grain) + 1 :]:
            if len(found.cells) <= most:
                break
            cells: dict[Cell, Sums] = {}
            for (partition, number), sums in self.cells.items():
                cell = partition, (number * self.grain // grain if grain else 0)
                cells[cell] = cells.get(cell, NONE).plus(sums)
            found = Manifest(grain=grain, cells=cells)
        return found

    def as_words(self) -> dict[str, Any]:
        cells = [
            [partition, number, s.count, s.first, s.last, f"{s.rows:x}", f"{s.bytes:x}"]
            for (partition, number), s in sorted(self.cells.items())
        ]
        return {"grain": self.grain, "cells": cells}

    @classmethod
    def from_words(cls, words: dict[str, Any]) -> Manifest:
        cells = {
            (partition, number): Sums(count, first, last, int(rows, 16), int(bytes_, 16))
            for partition, number, count, first, last, rows, bytes_ in words["cells"]
        }
        return cls(grain=words["grain"], cells=cells)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Records that are to be written: the manifests of both tables, and the counts by ingest and reason."""

    archive: Manifest
    quarantine: Manifest
    archived: dict[int, int]
    quarantined: dict[str, dict[int, int]]

    @property
    def records(self) -> int:
        return self.archive.count + self.quarantine.count


def count(hours: DataFrame) -> Counted:
    """The manifests of records by their hourly sums, which are made once; only sums of them come to this process."""
    hours = hours.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        by = hours.groupBy("_ingest", "_reason").agg(F.sum("count").alias("count")).collect()
        refused = F.col("_reason").isNotNull()
        made = Counted(
            archive=gathered(hours.where(~refused)),
            quarantine=gathered(hours.where(refused)),
            archived={row["_ingest"]: row["count"] for row in by if row["_reason"] is None},
            quarantined={
                reason: {row["_ingest"]: row["count"] for row in by if row["_reason"] == reason}
                for reason in sorted({row["_reason"] for row in by} - {None})
            },
        )
    finally:
        hours.unpersist()
    return made


def gathered(hours: DataFrame) -> Manifest:
    """The manifest of hourly sums, in the finest cells that it may have."""
    for grain in GRAINS:
        cell = whole(F.col("_cell"), grain) if grain else F.lit(0)
        rows = summed(hours, "_partition", cell.alias("_number")).limit(MOST_ROWS + 1).collect()
        if len(rows) <= MOST_ROWS or not grain:
            break
    cells = {(row["_partition"], row["_number"]): Sums.of(row) for row in rows}
    return Manifest(grain=grain, cells=cells).at_most(MOST_CELLS)


def merged(manifests: Iterable[Manifest]) -> dict[int, Sums]:
    """The sums of several manifests per partition."""
    found: dict[int, Sums] = {}
    for partition, sums in each_partition(manifests):
        found[partition] = found.get(partition, NONE).plus(sums)
    return found


def each_partition(manifests: Iterable[Manifest]) -> Iterator[tuple[int, Sums]]:
    for manifest in manifests:
        yield from manifest.partitions.items()
