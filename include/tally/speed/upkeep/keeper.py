"""Keeps the speed tables of one driver small, beside its micro-batches: folds, trims, a short log, no unneeded files.

It is one thread of the driver's process, so each table keeps its one writer. A fold and an append of the same table do
not conflict: the fold changes no data, the append reads none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import SparkSession

from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import kept_ledger, leases, ledger
from tally.control.store import now_ms
from tally.lake import delta, tables
from tally.speed import commit
from tally.speed.upkeep import ledger_table, short_log
from tally.speed.upkeep.fold import fold, trim

# What leaves the log has long been copied.
COPY_AFTER_MS = short_log.KEPT_MS // 2
DAY_SECONDS = 86_400.0
# A micro-batch a second writes 86,400 files a day. Its table travels back an hour at most, and who read it when a fold
# replaced some has a day, or, of files that were older than that, this hour.
KEEP_HOURS = 24
SWEEP_SECONDS = 3_600.0


class Keeper:
    """The thread, and the one job that it may have for each pipeline."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="keeper")
        self.jobs: dict[str, Future[None]] = {}

    def after(self, pipeline: Pipeline, batch: int, lease: leases.Lease) -> None:
        """After a micro-batch: raise what the last job raised, and begin the next one if it is time."""
        job = self.jobs.get(pipeline.name)
        if job is not None and job.done():
            self.finish(pipeline)
        every = settings().fold_after_batches
        if every > 0 and batch > 0 and batch % every == 0 and pipeline.name not in self.jobs:
            self.jobs[pipeline.name] = self.pool.submit(self.tidy, pipeline, lease)

    def finish(self, pipeline: Pipeline) -> None:
        """Wait for the job of a pipeline, and raise what it raised."""
        job = self.jobs.pop(pipeline.name, None)
        if job is not None:
            job.result()

    def leaves(self, pipeline: Pipeline) -> bool:
        """Take back a job of a pipeline that waits; whether none of its runs, so that its table may be let go of."""
        job = self.jobs.get(pipeline.name)
        if job is not None and job.cancel():
            del self.jobs[pipeline.name]
            return True
        return job is None or job.done()

    def close(self) -> None:
        """Wait for the job that runs; those that wait are left for another time."""
        self.pool.shutdown(cancel_futures=True)

    def tidy(self, pipeline: Pipeline, lease: leases.Lease) -> None:
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "keeper")
        tidy(self.spark, pipeline, lambda: leases.check(lease))


def tidy(spark: SparkSession, pipeline: Pipeline, still_mine: Callable[[], None]) -> None:
    """All of it, for one pipeline; doing so again changes nothing. Before each commit the lease is asked for."""
    still_mine()
    stream = ledger_table.stream_of(pipeline)
    told = kept_ledger.newest(stream)
    uncopied = ledger.after(stream.name, stream.version, told.generation, told.batch, limit=1)
    if uncopied and uncopied[0].committed_at < now_ms() - COPY_AFTER_MS:
        ledger_table.keep(spark, stream)
    short_log.shorten(commit.path(pipeline))
    with tables.alone(commit.path(pipeline)):
        fold(spark, pipeline, still_mine)
        trim(spark, pipeline, still_mine)
    still_mine()
    vacuum_when_due(spark, pipeline)


def vacuum_when_due(spark: SparkSession, pipeline: Pipeline) -> bool:
    """Now and then, join the ledger table's files, and delete what folds and trims replaced more than a day ago."""
    stream = ledger_table.stream_of(pipeline)
    kept, where = kept_ledger.path(stream), commit.path(pipeline)
    if due(f"ledger-{stream.name}-{stream.version}", DAY_SECONDS) and delta.table(kept) is not None:
        ledger_table.pack(stream)
        spark.sql(f"OPTIMIZE delta.`{kept}`")
        spark.sql(f"VACUUM delta.`{kept}` RETAIN 168 HOURS")
    local = "://" not in where
    if not due(f"{pipeline.name}-{pipeline.version}", SWEEP_SECONDS if local else DAY_SECONDS):
        return False
    if local:
        tables.sweep(where, KEEP_HOURS)
    else:
        spark.sql(f"VACUUM delta.`{where}` RETAIN {KEEP_HOURS} HOURS")
    return True


def due(name: str, every: float) -> bool:
    """Whether its last turn was so many seconds ago; the first look begins them: nothing of it is that old."""
    last = settings().home / "run" / f"vacuumed-{name.replace(' ', '-')}"
    began = not last.exists()
    if not began and time.time() - last.stat().st_mtime < every:
        return False
    last.touch()
    return not began
