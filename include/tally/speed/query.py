"""Starts one pipeline's streaming query on its own version's checkpoint and table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.checks.definition import check
from tally.control import leases, ledger
from tally.kinds import kind_of
from tally.lake import tables
from tally.lake.inside_delta import forget
from tally.sources import kafka
from tally.sources.frames import partition_date, stream_frames
from tally.speed import commit, partition_order
from tally.speed.start import agreement, torn_files
from tally.speed.start.generation import empty_table, put_broken_table_aside
from tally.speed.start.stored_state import StoredState
from tally.speed.upkeep import ledger_table, short_log
from tally.speed.upkeep.keeper import Keeper

Applied = Callable[[ledger.MicroBatch], None]


def start(
    keeper: Keeper, pipeline: Pipeline, lease: leases.Lease, applied: Applied, *, until_caught_up: bool = False
) -> StreamingQuery:
    """A running query; raises where checkpoint, ledger, table and topics do not agree."""
    spark = keeper.spark
    healed = torn_files.heal(pipeline)
    stored = agreement.ensure(pipeline)
    remember_topics(pipeline)
    check_definition(spark, stored)
    rows = declared_rows(spark, pipeline)
    leave_harmed_log(spark, stored, healed)
    prepare_table(spark, pipeline, rows, lease)
    leave_older_generations(spark, stored)
    apply = one_batch(keeper, stored, lease, applied)
    return begun(rows, stored, apply, until_caught_up=until_caught_up)


def remember_topics(pipeline: Pipeline) -> None:
    """Keep each topic's identity, at first sight."""
    for topic in pipeline.reads:
        kafka.check_identity(topic.name)


def check_definition(spark: SparkSession, stored: StoredState) -> None:
    """Refuse to begin what could not be reconciled later; a stream that has begun goes on."""
    if not (stored.mine or stored.plans):
        check(spark, stored.pipeline)


def declared_rows(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The unbounded rows that the pipeline's function makes of its topics."""
    kind = kind_of(pipeline)
    return kind.streamed(kind.unbounded(stream_frames(spark, pipeline)))


def leave_harmed_log(spark: SparkSession, stored: StoredState, healed: Sequence[str]) -> None:
    """Put a harmed table aside where a generation begins; Spark reads the log anew where files of it were moved."""
    if (stored.fresh and put_broken_table_aside(stored)) or healed:
        forget(spark, commit.path(stored.pipeline))


def prepare_table(spark: SparkSession, pipeline: Pipeline, rows: DataFrame, lease: leases.Lease) -> None:
    """Have the speed table with its columns, and the ledger complete, before the first micro-batch.

    Where the last writer is silent and not known to be gone, the table's properties are changed first: Delta then
    refuses what that one may be about to commit.
    """
    failpoint("speed.before_table")
    shape = spark.createDataFrame([], rows.schema)
    shape = shape.withColumns({"_batch": F.lit(0).cast("bigint"), "_date": partition_date()})
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


def one_batch(
    keeper: Keeper, stored: StoredState, lease: leases.Lease, applied: Applied
) -> Callable[[DataFrame, int], None]:
    """What is done with each micro-batch: one commit, then word of it, then the keeper's turn."""
    pipeline = stored.pipeline

    def in_order(ranges: ledger.Ranges) -> ledger.Ranges:
        return partition_order.in_order(keeper.spark, pipeline, ranges)

    def apply(rows: DataFrame, batch: int) -> None:
        failpoint("speed.begin")
        applied(commit.write(rows, batch, pipeline, stored.generation, lease, in_order))
        keeper.after(pipeline, batch, lease)
        failpoint("speed.end")

    return apply


def begun(
    rows: DataFrame, stored: StoredState, apply: Callable[[DataFrame, int], None], *, until_caught_up: bool
) -> StreamingQuery:
    """Spark's query on the generation's checkpoint."""
    pipeline = stored.pipeline
    writer = (
        rows.writeStream.queryName(pipeline.name)
        .outputMode("append" if pipeline.append_only else "update")
        .option("checkpointLocation", stored.root)
        .foreachBatch(apply)
    )
    pace = {"availableNow": True} if until_caught_up else {"processingTime": f"{settings().trigger_seconds} seconds"}
    rows.sparkSession.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
    return writer.trigger(**pace).start()
