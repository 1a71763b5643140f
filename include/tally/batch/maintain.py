"""Keeps Delta tables small: few files, and none that no version of the last week needs. Rows stay what they are.

The control store is kept small too: of micro-batches of long ago it has one row a stream, and the lake the rest.

Each table is worked on under its writer's lock. Speed tables are left alone: their one writer is the stream's driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tally.base.duration import millis, parse_duration
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.control import kept_ledger, ledger
from tally.control.store import now_ms
from tally.host import lock
from tally.lake import delta, memory
from tally.lake.session import jvm_pid
from tally.sources import redecode
from tally.sources.archive import COMPRESSION


@dataclass(frozen=True, kw_only=True)
class Target:
    """A table's path parts, and those of the lock that its writer takes."""

    table: tuple[str, ...]
    lock: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Of a stream's ledger, how many rows the control store has no more: the lake has all of them."""

    table: str
    rows: int

    def __str__(self) -> str:
        return f"{self.table}: {self.rows} rows of old micro-batches left to the lake"


@dataclass(frozen=True, kw_only=True)
class Tidied:
    """What one table lost: small files that were joined, and files that no retained version needs."""

    table: str
    joined: int
    into: int
    removed: int

    def __str__(self) -> str:
        return f"{self.table}: {self.joined} files joined into {self.into}, {self.removed} unneeded files removed"


def targets() -> Iterator[Target]:
    """Every table of the catalogue that batch jobs write; a quarantine is written under its archive's lock."""
    known = catalogue()
    for topic in (name for name, one in known.topics.items() if not redecode.unfinished(one)):
        yield Target(table=("archive", topic), lock=("archive", topic))
        yield Target(table=("quarantine", topic), lock=("archive", topic))
    for pipeline in known.pipelines.values():
        yield Target(table=("batch", pipeline.name, pipeline.version), lock=("batch", pipeline.name, pipeline.version))
        yield Target(table=("audit", pipeline.name), lock=("audit", pipeline.name))


@memory.told(memory.BATCH)
def maintain(spark: SparkSession) -> list[Tidied | Folded]:
    """Compact and vacuum each table that is there, and fold the ledger; doing so again finds nothing to do."""
    there = [target for target in targets() if delta.table(settings().table(*target.table)) is not None]
    return [*(tidy(spark, target) for target in there), *fold_ledger()]


def fold_ledger() -> Iterator[Folded]:
    """One row in the control store for all old micro-batches of a generation; the lake is seen to have each of them."""
    before = now_ms() - millis(parse_duration(settings().keep_ledger, field="TALLY_KEEP_LEDGER"))
    for name, version, generation in ledger.generations():
        edges, stream = ledger.old(name, version, generation, before), kept_ledger.Named(name, version)
        if edges is None or edges[0] == edges[1] or not kept_ledger.has(stream, generation, *edges):
            continue
        failpoint("maintain.before_fold_ledger")
        yield Folded(table=kept_ledger.path(stream), rows=ledger.fold(name, version, generation, edges[1]))
        failpoint("maintain.after_fold_ledger")


def tidy(spark: SparkSession, target: Target) -> Tidied:
    """OPTIMIZE, then VACUUM with the retention setting (168 hours at least: readers and replays go back so far)."""
    path = settings().table(*target.table)
    with lock.table(*target.lock, jvm=jvm_pid(spark)):
        spark.conf.set("spark.sql.parquet.compression.codec", COMPRESSION)  # OPTIMIZE has no option for it
        metrics = spark.sql(f"OPTIMIZE delta.`{path}`").collect()[0]["metrics"]
        before = delta.version(path)
        spark.sql(f"VACUUM delta.`{path}` RETAIN {settings().vacuum_hours} HOURS")
        removed = vacuumed(path, before)
    return Tidied(
        table="/".join(target.table),
        joined=int(metrics["numFilesRemoved"]),
        into=int(metrics["numFilesAdded"]),
        removed=removed,
    )


def vacuumed(path: str, before: int) -> int:
    """How many files the VACUUM after a version says it removed."""
    metrics = [commit.metrics for commit in delta.commits(path) if commit.version > before]
    return sum(int(found.get("numDeletedFiles", 0)) for found in metrics)
