"""What a stream's table must remember for longer than its short log: the ledger's entries, and the days trimmed of it.

Both lie in a small Delta table of their own, `ledger/<pipeline>/<version>`, written by the stream's driver only. The
entries of a topic's stream lie in one such table, for all pipelines that share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import date
from itertools import takewhile
from typing import Literal

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tally.base.failpoints import failpoint
from tally.catalog.spec import Pipeline
from tally.control import ledger, shares
from tally.control.kept_ledger import Named, Stream, Told, newest, parts, path
from tally.control.ledger import NEAR, MicroBatch
from tally.control.packed_ledger import in_rows, packed
from tally.lake import delta, tables
from tally.speed import commit

SCHEMA = pa.schema([("generation", pa.int32()), ("first", pa.int64()), ("batch", pa.int64()), ("packed", pa.binary())])


def stream_of(pipeline: Pipeline) -> Stream:
    """Where the ledger has the micro-batches of a pipeline's newest generation."""
    share, last = shares.of(pipeline.name, pipeline.version), ledger.newest(pipeline.name, pipeline.version)
    if share is None or last is None or last.generation > share.generation:
        return pipeline
    return Named(*shares.stream_of(share.topic))


def keep(spark: SparkSession, stream: Stream) -> int:
    """Append the ledger's entries that the table lacks; the number of them."""
    told = newest(stream)
    missing = ledger.after(stream.name, stream.version, told.generation, told.batch)
    if missing:
        write(spark, stream, missing, replace(told, generation=missing[-1].generation, batch=missing[-1].batch))
    return len(missing)


def trimmed(pipeline: Pipeline) -> list[date]:
    """The days whose rows were trimmed of the speed table, or are about to be."""
    return [date.fromisoformat(day) for day in newest(pipeline).trimmed]


def will_trim(spark: SparkSession, pipeline: Pipeline, days: list[date]) -> None:
    """Remember days, before their rows go."""
    told = newest(pipeline)
    write(spark, pipeline, [], replace(told, trimmed=sorted({*told.trimmed, *map(str, days)})))


def write(spark: SparkSession, stream: Stream, kept: Sequence[MicroBatch], told: Told) -> None:
    """Append entries in a commit that says what is told from now on."""
    rows = rows_of(kept)
    failpoint("speed.before_keeping")
    words = delta.words("ledger", **asdict(told))
    if "://" in path(stream):
        frame = spark.createDataFrame(rows.to_pylist(), from_arrow_schema(SCHEMA)).coalesce(1)
        tables.append(frame, path(stream), words, mergeSchema="true")  # of an older table, a column is missing
    else:
        put(stream, rows, words, "append")
    failpoint("speed.after_keeping")


def pack(stream: Stream) -> int:
    """Give a table of an older make packed rows, in one commit; doing so again changes nothing. The number of entries.

    Not in an object store: who writes there is Spark, and such tables are read as they are.
    """
    table = delta.table(path(stream))
    if table is None or "://" in path(stream) or "ranges" not in {field.name for field in table.schema().fields}:
        return 0
    rows, count = SCHEMA.empty_table(), 0
    for part in parts(stream):
        rows, count = pa.concat_tables([rows, rows_of(part)]), count + len(part)
    failpoint("speed.before_packing")
    put(stream, rows, delta.words("ledger", **asdict(newest(stream))), "overwrite")
    return count


def put(stream: Stream, rows: pa.Table, words: str, mode: Literal["append", "overwrite"]) -> None:
    """The same without Spark, which takes some hundred times as long."""
    said = CommitProperties(custom_metadata={"userMetadata": words})
    schema: Literal["merge", "overwrite"] = "merge" if mode == "append" else "overwrite"
    write_deltalake(path(stream), rows, mode=mode, schema_mode=schema, commit_properties=said)


def rows_of(kept: Sequence[MicroBatch]) -> pa.Table:
    """Entries as the table's rows."""
    rows = [(some[0].generation, some[0].batch, some[-1].batch, packed(some)) for some in in_rows(kept)]
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[] for _ in SCHEMA], schema=SCHEMA)


def repair(pipeline: Pipeline) -> int:
    """Copy into the ledger what it lacks, from Delta commits and from what was kept of older ones; the count of it."""
    last = next(applied(pipeline), None)
    if last is None or last.ids != NEAR:
        return fill(pipeline, (one for one in applied(pipeline) if one.ids != NEAR))
    known = shares.of(pipeline.name, pipeline.version, last.generation)
    reached = known.batch if known is not None else -1

    def lacks(one: delta.Commit) -> bool:
        return bool(one.words["generation"] == last.generation and one.words["batch"] > reached)

    ahead = list(takewhile(lacks, commits(pipeline)))
    for one in reversed(ahead):
        shares.advance(commit.shared(one))
    stream = Named(*shares.stream_of(next(iter(last.ranges))))
    singles = (one for one in applied(pipeline) if one.first is None and one.ids == NEAR)
    return fill(stream, (of_topic(one, stream) for one in singles))


def of_topic(one: MicroBatch, stream: Stream) -> MicroBatch:
    """A pipeline's micro-batch as that of its topic's stream."""
    place = replace(one, pipeline=stream.name, version=stream.version, generation=shares.GENERATION)
    return replace(place, rows=0, delta_version=-1)


def applied(pipeline: Pipeline) -> Iterator[MicroBatch]:
    """The micro-batches of which the log of a pipeline's table tells, newest first."""
    return map(ledger.from_commit, commits(pipeline))


def commits(pipeline: Pipeline) -> Iterator[delta.Commit]:
    """The commits of a pipeline's table that hold micro-batches, newest first."""
    return (one for one in delta.commits(commit.path(pipeline)) if one.words.get("kind") == "micro-batch")


def fill(stream: Stream, told: Iterable[MicroBatch]) -> int:
    """The same for one stream, of whose newest micro-batches logs tell, newest first.

    Older ones go first, and in parts: a repair that is killed goes on where it was.
    """
    reached, whole = ledger.unbroken(stream.name, stream.version)
    missing, joined = dict[tuple[int, int], MicroBatch](), False
    for one in told:
        joined = whole and one.batch <= reached.get(one.generation, -1)
        if joined:
            break
        missing[one.generation, one.batch] = one
    count = len(missing)
    for part in [] if joined else parts(stream):
        lacking = [entry for entry in part if entry.batch > reached.get(entry.generation, -1)]
        older = [entry for entry in lacking if (entry.generation, entry.batch) not in missing]
        ledger.record(older)
        count += len(older)
    ledger.record(missing[place] for place in sorted(missing))
    return count
