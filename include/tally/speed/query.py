"""Makes one pipeline's streaming query ready, and begins it, on its own version's checkpoint and table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import LongType, StructField, StructType

from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.checks.definition import Definition
from tally.control import leases
from tally.kinds import kind_of
from tally.lake import tables
from tally.lake.inside_delta import forget
from tally.sources import kafka
from tally.sources.frames import DAY, stream_frames
from tally.speed import commit
from tally.speed.start import agreement, torn_files
from tally.speed.start.generation import empty_table, put_broken_table_aside
from tally.speed.start.stored_state import StoredState
from tally.speed.upkeep import ledger_table, short_log

# What Spark calls with each micro-batch's rows and number.
Sink = Callable[[DataFrame, int], None]


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A query that can begin: the rows that it makes, what is stored of it, and where its micro-batches go."""

    rows: DataFrame
    stored: StoredState
    target: commit.Target


def prepare(definition: Definition, lease: leases.Lease) -> Ready:
    """Put in order what a query needs to begin; raises where checkpoint, ledger, table and topics do not agree."""
    stored, target = prepared(definition, lease)
    rows = declared_rows(definition.spark, definition.pipeline)
    return Ready(rows=rows, stored=stored, target=target)


def prepare_shared(definition: Definition, lease: leases.Lease) -> commit.Target:
    """The same for one that shares its topic's stream: its table, and what is written to it."""
    return prepared(definition, lease)[1]


def prepared(definition: Definition, lease: leases.Lease) -> tuple[StoredState, commit.Target]:
    """What is stored of a stream, in order, and where its micro-batches go."""
    spark, pipeline = definition.spark, definition.pipeline
    healed = torn_files.heal(pipeline)
    stored = agreement.ensure(pipeline)
    remember_topics(pipeline)
    check_definition(definition, stored)
    leave_harmed_log(spark, stored, healed)
    prepare_table(spark, pipeline, definition.rows.schema, lease)
    leave_older_generations(spark, stored)
    return stored, commit.Target(spark=spark, pipeline=pipeline, generation=stored.generation, lease=lease)


def remember_topics(pipeline: Pipeline) -> None:
    """Keep each topic's identity, at first sight."""
    for topic in pipeline.reads:
        kafka.check_identity(topic.name)


def check_definition(definition: Definition, stored: StoredState) -> None:
    """Refuse to begin what could not be reconciled later; a stream that has begun goes on."""
    if not (stored.mine or (stored.plans and not stored.shared)):
        definition.check()


def declared_rows(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The unbounded rows that the pipeline's function makes of its topics."""
    kind = kind_of(pipeline)
    return kind.streamed(kind.unbounded(stream_frames(spark, pipeline)))


def leave_harmed_log(spark: SparkSession, stored: StoredState, healed: Sequence[str]) -> None:
    """Put a harmed table aside where a generation begins; Spark reads the log anew where files of it were moved."""
    if (stored.fresh and put_broken_table_aside(stored)) or healed:
        forget(spark, commit.path(stored.pipeline))


def prepare_table(spark: SparkSession, pipeline: Pipeline, rows: StructType, lease: leases.Lease) -> None:
    """Have the speed table with its columns, and the ledger complete, before the first micro-batch.

    Where the last writer is silent and not known to be gone, the table's properties are changed first: Delta then
    refuses what that one may be about to commit.
    """
    failpoint("speed.before_table")
    shape = StructType([*rows.fields, StructField("_batch", LongType()), DAY])
    tables.make_table(spark, commit.path(pipeline), shape, short_log.PROPERTIES)
    fence = {} if lease.sure else {"tally.epoch": str(lease.epoch)}
    tables.set_properties(spark, commit.path(pipeline), short_log.PROPERTIES | fence)
    failpoint("speed.before_repair")
    ledger_table.repair(pipeline)
    failpoint("speed.after_repair")


def leave_older_generations(spark: SparkSession, stored: StoredState) -> None:
    """Empty the table where a generation begins."""
    if stored.fresh:
        empty_table(spark, stored)


def begin(ready: Ready, sink: Sink, *, until_caught_up: bool = False) -> StreamingQuery:
    """The running query on the generation's checkpoint, which gives each of its micro-batches to the sink."""
    pipeline = ready.target.pipeline
    writer = (
        ready.rows.writeStream.queryName(pipeline.name)
        .outputMode("append" if pipeline.append_only else "update")
        .option("checkpointLocation", ready.stored.root)
        .foreachBatch(sink)
    )
    pace = {"availableNow": True} if until_caught_up else {"processingTime": f"{settings().trigger_seconds} seconds"}
    ready.target.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
    return writer.trigger(**pace).start()
