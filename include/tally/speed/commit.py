"""One micro-batch becomes one Delta commit that carries its own ledger entry; a replayed one changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.errors import AnswerIsNo
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import leases, ledger, shares
from tally.lake import delta, inside_delta, tables
from tally.sources.frames import partition_date
from tally.speed import checkpoint, partition_order


def path(pipeline: Pipeline) -> str:
    """The speed table of a pipeline's version."""
    return settings().table("speed", pipeline.name, pipeline.version)


def order(generation: int, batch: int) -> int:
    """What `_batch` holds: it grows with every micro-batch, also over a new generation that counts from 0 again."""
    return ((generation - 1) << 40) + batch


# Before the number of a generation but the first, in what names it.
NUMBERED = ".g"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Whose micro-batches are written, under which lease; `spark` is the session that runs the query."""

    spark: SparkSession  # no micro-batch's own: that one is a copy, which knows no running query
    pipeline: Pipeline
    generation: int
    lease: leases.Lease

    @property
    def place(self) -> tuple[str, str]:
        """What names its generation among all that share a topic's stream: its name, and its version with a number."""
        number = "" if self.generation == 1 else f"{NUMBERED}{self.generation}"
        return self.pipeline.name, self.pipeline.version + number


def write(rows: DataFrame, batch: int, target: Target) -> ledger.MicroBatch:
    """Append a micro-batch's rows; one that the table already holds changes nothing.

    The ledger's newest entry tells which that is: one writer, and each of its commits is in the ledger before the next.
    """
    pipeline, generation = target.pipeline, target.generation
    before = ledger.newest(pipeline.name, pipeline.version)  # complete: it is repaired before a query starts
    check_follows(pipeline, before, generation, batch)
    if before is not None and (before.generation, before.batch) == (generation, batch):
        # Killed after this batch's commit, before Spark's own: Spark runs it again and wants its state made, and its
        # watermark moved, by the very same rows. Delta would skip the write, and with it the rows.
        rows.write.format("noop").mode("overwrite").save()
        return before
    root = checkpoint.root(pipeline.name, pipeline.version, generation)
    plan = checkpoint.planned(root, batch, [topic.name for topic in pipeline.reads])
    plan = replace(plan, ranges=partition_order.in_order(target.spark, pipeline, plan.ranges))
    return append(rows, plan, target)


def append(rows: DataFrame, plan: checkpoint.Planned, target: Target) -> ledger.MicroBatch:
    """Append the rows of a planned micro-batch, in a commit that tells the plan; then the ledger has it."""
    pipeline, generation, batch = target.pipeline, target.generation, plan.batch
    words = delta.words("micro-batch", **as_words(plan, pipeline, generation))
    failpoint("speed.before_commit")
    leases.check(target.lease)
    placed = {"_batch": F.lit(order(generation, batch)).cast("bigint"), "_date": partition_date()}
    tables.append(rows.withColumns(placed), path(pipeline), words)
    failpoint("speed.after_commit")
    done = committed(rows.sparkSession, pipeline, generation, batch)
    ledger.record([done])
    failpoint("speed.after_ledger")
    return done


def append_arrow(rows: pa.Table, plan: checkpoint.Planned, target: Target, table: DeltaTable) -> ledger.MicroBatch:
    """The same without Spark, for rows that lie in this process."""
    words = as_words(plan, target.pipeline, target.generation) | {"rows": rows.num_rows}
    placed = {
        "_batch": pa.array([order(target.generation, plan.batch)] * rows.num_rows, pa.int64()),
        "_date": pc.cast(rows["window_start"], pa.date32()),
    }
    for name, column in placed.items():
        rows = rows.append_column(name, column)
    failpoint("speed.before_commit")
    leases.check(target.lease)
    version = tables.append_arrow(rows, table, delta.words("micro-batch", **words))
    failpoint("speed.after_commit")
    found = delta.commit_at(table, version)
    shares.advance(shared(found))
    failpoint("speed.after_ledger")
    return ledger.from_commit(found)


def shared(found: delta.Commit) -> shares.Share:
    """How far a pipeline is in its topic's stream by a commit of its table."""
    done, since = ledger.from_commit(found), int(found.words.get("since", 0))
    (topic,) = done.ranges
    return shares.Share(
        pipeline=done.pipeline, version=done.version, generation=done.generation, topic=topic, batch=done.batch,
        rows=done.rows, delta_version=done.delta_version, committed_at=done.committed_at, since=since,
    )  # fmt: skip


def version_of(pipeline: Pipeline, batch: ledger.MicroBatch) -> int | None:
    """The version of the table that a micro-batch's commit made; None where the log has forgotten it."""
    if batch.delta_version >= 0:
        return batch.delta_version
    place = batch.generation, batch.batch
    for one in delta.commits(path(pipeline)):
        if one.words.get("kind") == "micro-batch" and (one.words["generation"], one.words["batch"]) == place:
            return one.version
    return None


def check_follows(pipeline: Pipeline, before: ledger.MicroBatch | None, generation: int, batch: int) -> None:
    """Refuse a micro-batch that is older than the table, or that leaves some out."""
    if before is not None and before.generation == generation and before.batch > batch:
        raise AnswerIsNo(
            f"the checkpoint is at micro-batch {batch}, the table already at {before.batch}",
            pipeline=pipeline.name,
            field="checkpoint",
            cure="put back the newest checkpoint: an older copy would write older values over newer ones",
        )
    if batch > (before.batch + 1 if before is not None and before.generation == generation else 0):
        reached = before.batch if before is not None else "none"
        raise AnswerIsNo(
            f"the checkpoint is at micro-batch {batch}, the table only at {reached}: rows in between are missing",
            pipeline=pipeline.name,
            field="checkpoint",
            cure="put back the newest table, or rebuild the stream from retained offsets",
        )


def as_words(plan: checkpoint.Planned, pipeline: Pipeline, generation: int) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "version": pipeline.version,
        "generation": generation,
        "batch": plan.batch,
        "ranges": plan.ranges,
        "late_watermark": plan.late_watermark,
        "watermark": plan.watermark,
        "ids": plan.ids,
        **({} if plan.first is None else {"first": plan.first}),
        **({"since": plan.since} if plan.since else {}),
    }


def committed(spark: SparkSession, pipeline: Pipeline, generation: int, batch: int) -> ledger.MicroBatch:
    """The ledger entry of an applied micro-batch, from the Delta commit that holds it."""
    for commit in inside_delta.commits(spark, path(pipeline)):
        words = commit.words
        if words.get("kind") == "micro-batch" and (words["generation"], words["batch"]) == (generation, batch):
            return ledger.from_commit(commit)
    raise AssertionError(f"micro-batch {batch} of {pipeline.name} was written but no commit holds it")
