"""Whether a running query gets on: a micro-batch that stands still, and a stream for which nothing waits."""

from __future__ import annotations

import time
from contextlib import suppress

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

# A running micro-batch of which no task ended for so long is stuck: Kafka's own time-outs are two minutes at most.
STUCK_SECONDS = 300.0
# What failed before has failed by then again; sooner, and each try of a driver that keeps dying would count as a cure.
CALM_SECONDS = 30.0


class Motion:
    """What was seen of one query since it began."""

    def __init__(self, query: StreamingQuery, spark: SparkSession) -> None:
        self.query, self.spark = query, spark
        self.began_at = self.moved_at = time.monotonic()
        self.seen: object = None
        self.waits = False  # its newest look at Kafka found nothing to do

    def look(self) -> None:
        """To be called every now and then."""
        seen, self.waits = None, False
        with suppress(Exception):  # it may end while it is asked
            status = self.query.status
            active = bool(status["isTriggerActive"])
            self.waits = not active and not status["isDataAvailable"] and status["message"].startswith("Waiting for")
            if active:
                progress = self.query.lastProgress
                seen = progress and progress["batchId"], tasks_ended(self.spark, self.query)
        if seen is None or seen != self.seen:
            self.seen, self.moved_at = seen, time.monotonic()

    @property
    def stuck(self) -> bool:
        """Whether a micro-batch runs of which nothing ends."""
        return time.monotonic() - self.moved_at > STUCK_SECONDS

    @property
    def calm(self) -> bool:
        """Whether it runs well and has nothing to do: what was planned is applied, and Kafka holds no more."""
        return self.waits and time.monotonic() - self.began_at > CALM_SECONDS


def tasks_ended(spark: SparkSession, query: StreamingQuery) -> list[tuple[int, int]]:
    """The stages that now run for a query, each with the number of its tasks that ended."""
    tracker = spark.sparkContext.statusTracker()
    mine = set(tracker.getJobIdsForGroup(str(query.runId))) & set(tracker.getActiveJobsIds())
    jobs = [tracker.getJobInfo(number) for number in sorted(mine)]
    stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    return [(stage.stageId, stage.numCompletedTasks) for stage in stages if stage is not None]
