"""What a stream's table must remember for longer than its short log: the ledger's entries, and the days trimmed of it.

Both lie in a small Delta table of their own, `ledger/<pipeline>/<version>`, written by the stream's driver only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date

from pyspark.sql import SparkSession

from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import ledger
from tally.control.ledger import MicroBatch
from tally.lake import delta, tables
from tally.speed import commit

# Entries held in memory, and written in one transaction: seconds for which others wait for the control store.
PART = 20_000
COLUMNS = {
    "generation": "INT",
    "batch": "BIGINT",
    "ranges": "STRING",
    "late_watermark": "BIGINT",
    "watermark": "BIGINT",
    "rows": "BIGINT",
    "delta_version": "BIGINT",
    "committed_at": "BIGINT",
    "ids": "STRING",
}


@dataclass(frozen=True, kw_only=True)
class Told:
    """What each commit of the table says: the last entry that is kept, and every day ever trimmed."""

    generation: int = 0
    batch: int = -1
    trimmed: list[str] = field(default_factory=list)


def path(pipeline: Pipeline) -> str:
    return settings().table("ledger", pipeline.name, pipeline.version)


def keep(spark: SparkSession, pipeline: Pipeline) -> int:
    """Append the ledger's entries that the table lacks; the number of them."""
    told = newest(pipeline)
    missing = ledger.after(pipeline.name, pipeline.version, told.generation, told.batch)
    if missing:
        write(spark, pipeline, missing, replace(told, generation=missing[-1].generation, batch=missing[-1].batch))
    return len(missing)


def trimmed(pipeline: Pipeline) -> list[date]:
    """The days whose rows were trimmed of the speed table, or are about to be."""
    return [date.fromisoformat(day) for day in newest(pipeline).trimmed]


def will_trim(spark: SparkSession, pipeline: Pipeline, days: list[date]) -> None:
    """Remember days, before their rows go."""
    told = newest(pipeline)
    write(spark, pipeline, [], replace(told, trimmed=sorted({*told.trimmed, *map(str, days)})))


def newest(pipeline: Pipeline) -> Told:
    """What the table's newest commit says."""
    found = delta.newest(path(pipeline), "ledger")
    return Told(**{f.name: found.words[f.name] for f in fields(Told)}) if found else Told()


def write(spark: SparkSession, pipeline: Pipeline, kept: list[MicroBatch], told: Told) -> None:
    """Append entries in a commit that says what is told from now on."""
    rows = [tuple(getattr(entry, name) for name in COLUMNS) for entry in kept]
    texts = [(generation, batch, json.dumps(ranges), *more) for generation, batch, ranges, *more in rows]
    frame = spark.createDataFrame(texts, ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())).coalesce(1)
    failpoint("speed.before_keeping")
    words = delta.words("ledger", **asdict(told))
    tables.append(frame, path(pipeline), words, mergeSchema="true")  # of an older table, a column is missing
    failpoint("speed.after_keeping")


def parts(pipeline: Pipeline) -> Iterator[list[MicroBatch]]:
    """Every entry that is kept, once, oldest first, some thousands at a time: a year of them is too long for a list."""
    table = delta.table(path(pipeline))
    if table is None:
        return
    last = (0, -1)
    rows = table.to_pyarrow_table().sort_by([("generation", "ascending"), ("batch", "ascending")])
    for some in rows.to_batches(PART):
        found = []
        for row in some.to_pylist():
            if (row["generation"], row["batch"]) != last:
                place = {"pipeline": pipeline.name, "version": pipeline.version}
                told = {"ranges": json.loads(row["ranges"]), "ids": row.get("ids") or ledger.HELD}
                found.append(ledger.from_row({**row, **place, **told}))
            last = (row["generation"], row["batch"])
        yield found


def entries(pipeline: Pipeline) -> list[MicroBatch]:
    """All of them, in the order in which the micro-batches ran."""
    return [entry for part in parts(pipeline) for entry in part]


def repair(pipeline: Pipeline) -> int:
    """Copy into the ledger what it lacks, from Delta commits and from what was kept of older ones; the count of it.

    Older ones go first, and in parts: a repair that is killed goes on where it was.
    """
    reached, whole = ledger.unbroken(pipeline.name, pipeline.version)
    missing, joined = dict[tuple[int, int], ledger.MicroBatch](), False
    for found in delta.commits(commit.path(pipeline)):
        if found.words.get("kind") == "micro-batch":
            place = (found.words["generation"], found.words["batch"])
            joined = whole and place[1] <= reached.get(place[0], -1)
            if joined:
                break
            missing[place] = ledger.from_commit(found)
    count = len(missing)
    for part in [] if joined else parts(pipeline):
        lacking = [entry for entry in part if entry.batch > reached.get(entry.generation, -1)]
        older = [entry for entry in lacking if (entry.generation, entry.batch) not in missing]
        ledger.record(older)
        count += len(older)
    ledger.record(missing[place] for place in sorted(missing))
    return count
