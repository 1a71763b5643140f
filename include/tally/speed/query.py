"""Starts one pipeline's streaming query on its own version's checkpoint and table."""

from __future__ import annotations

from collections.abc import Callable

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
from tally.speed import agree, aside, checkpoint, commit, log, scan
from tally.speed.generation import empty_table, put_broken_table_aside
from tally.speed.keeper import Keeper

Applied = Callable[[ledger.MicroBatch], None]


def start(
    keeper: Keeper, pipeline: Pipeline, lease: leases.Lease, applied: Applied, *, until_caught_up: bool = False
) -> StreamingQuery:
    """A running query; raises where checkpoint, ledger, table and topics do not agree."""
    spark = keeper.spark
    healed = aside.heal(pipeline)
    sight = agree.ensure(pipeline)
    for topic in pipeline.reads:
        kafka.check_identity(topic.name)  # and remember it, at first sight
    generation, root = sight.generation, sight.root
    if not (sight.mine or sight.plans):  # what could not be reconciled later is not begun
        check(spark, pipeline)
    kind = kind_of(pipeline)
    rows = kind.streamed(kind.unbounded(stream_frames(spark, pipeline)))
    if (sight.fresh and put_broken_table_aside(sight)) or healed:
        forget(spark, commit.path(pipeline))
    prepare_table(spark, pipeline, rows, lease)
    if sight.fresh:
        empty_table(spark, sight)

    def apply(batch_rows: DataFrame, batch: int) -> None:
        failpoint("speed.begin")
        done = commit.write(
            batch_rows, batch, pipeline, generation, lease, lambda ranges: scan.in_order(spark, pipeline, ranges)
        )
        applied(done)
        keeper.after(pipeline, batch, lease)
        failpoint("speed.end")

    writer = (
        rows.writeStream.queryName(pipeline.name)
        .outputMode("append" if pipeline.append_only else "update")
        .option("checkpointLocation", root)
        .foreachBatch(apply)
    )
    pace = {"availableNow": True} if until_caught_up else {"processingTime": f"{settings().trigger_seconds} seconds"}
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline.name)
    return writer.trigger(**pace).start()


def check_sources(pipeline: Pipeline, root: str) -> None:
    """Refuse to start on a recreated topic or on offsets that retention ate."""
    topics = [topic.name for topic in pipeline.reads]
    planned, following = checkpoint.unread(root, topics)
    for topic in topics:
        kafka.check_identity(topic)
        kafka.check_retained(topic, planned.get(topic, {}), following.get(topic, {}), pipeline.name)


def prepare_table(spark: SparkSession, pipeline: Pipeline, rows: DataFrame, lease: leases.Lease) -> None:
    """Have the speed table with its columns, and the ledger complete, before the first micro-batch.

    Where the last writer is silent and not known to be gone, the table's properties are changed first: Delta then
    refuses what that one may be about to commit.
    """
    failpoint("speed.before_table")
    shape = spark.createDataFrame([], rows.schema)
    shape = shape.withColumns({"_batch": F.lit(0).cast("bigint"), "_date": partition_date()})
    tables.make_table(spark, commit.path(pipeline), shape, log.PROPERTIES)
    fence = {} if lease.sure else {"tally.epoch": str(lease.epoch)}
    tables.set_properties(spark, commit.path(pipeline), log.PROPERTIES | fence)
    failpoint("speed.before_repair")
    commit.repair_ledger(pipeline)
    failpoint("speed.after_repair")
