"""Whether a running query gets on: what a micro-batch's progress says, and whether one stands still, or none is due."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from pyspark.sql import SparkSession

from tally.catalog.spec import Pipeline
from tally.control import streams
from tally.sources.frames import observation

# Weight of the newest observation: a few micro-batches decide, a single slow one does not.
NEWEST_WEIGHT = 0.4
# A running micro-batch of which no task ended for so long is stuck: Kafka's own time-outs are two minutes at most.
STUCK_SECONDS = 300.0
# What failed before has failed by then again; sooner, and each try of a driver that keeps dying would count as a cure.
CALM_SECONDS = 30.0


def freshness(pipeline: Pipeline, progress: Any) -> dict[str, Any]:
    """Seconds from a micro-batch's newest record reaching the broker to its commit, its newest window, and its pace."""
    ended = ended_at(progress)
    found = progress["observedMetrics"]
    topics = [found[observation(topic)] for topic in pipeline.reads if observation(topic) in found]
    records = [row["newest_record"] for row in topics if row["newest_record"] is not None]
    told: dict[str, Any] = {
        "rows_per_second": float(progress.get("processedRowsPerSecond") or 0.0),
        "took": float(progress["durationMs"].get("triggerExecution", 0)) / 1000,
    }
    if records:
        told["freshness"] = max(0.0, (ended - max(records)) / 1000)
    if topics and topics[0]["newest_event"] is not None:
        told["newest_window"] = pipeline.slot(topics[0]["newest_event"])
    return told


def ended_at(progress: Any) -> float:
    """When a micro-batch ended, in milliseconds since the epoch."""
    began = datetime.fromisoformat(str(progress["timestamp"]).replace("Z", "+00:00")).timestamp() * 1000
    return began + float(progress["durationMs"].get("triggerExecution", 0))


def behind(progress: Any) -> int | None:
    """Records that Kafka held past the end of a micro-batch when it began; None where Spark does not say."""
    total = 0
    for source in progress["sources"]:
        try:
            latest, end = json.loads(source["latestOffset"]), json.loads(source["endOffset"])
        except (KeyError, TypeError, ValueError):
            return None
        if not latest:  # a micro-batch that was planned before the query began asks Kafka nothing
            return None
        for topic, parts in latest.items():
            reached = (end or {}).get(topic, {})
            total += sum(max(0, offset - reached.get(partition, 0)) for partition, offset in parts.items())
    return total


class Query(Protocol):
    """What is asked of a running query."""

    @property
    def lastProgress(self) -> Any: ...

    @property
    def status(self) -> Any: ...

    @property
    def runId(self) -> Any: ...


class Gain:
    """By how many records a second a stream's lag shrinks, over its last few micro-batches; negative: it grows."""

    def __init__(self) -> None:
        self.last: tuple[float, int] | None = None
        self.rate = 0.0

    def seen(self, at_ms: float, waiting: int) -> float:
        """Take in what one micro-batch left waiting; the rate now."""
        if self.last is not None and at_ms > self.last[0]:
            rate = (self.last[1] - waiting) / ((at_ms - self.last[0]) / 1000)
            self.rate = NEWEST_WEIGHT * rate + (1 - NEWEST_WEIGHT) * self.rate if self.rate else rate
        self.last = (at_ms, waiting)
        return self.rate


class Shown:
    """What is shown of one query's micro-batches: how fresh each made the windows, how fast it ran, what waits."""

    def __init__(self, pipeline: Pipeline, query: Query) -> None:
        self.pipeline, self.query = pipeline, query
        self.batch, self.gain = -1, Gain()

    def update(self) -> None:
        """Show the newest micro-batch that had records, once."""
        progress = self.query.lastProgress
        if not progress or progress["batchId"] == self.batch or not progress["numInputRows"]:
            return
        self.batch = progress["batchId"]
        waiting = behind(progress)
        lag = {} if waiting is None else {"behind": waiting, "gaining": self.gain.seen(ended_at(progress), waiting)}
        streams.show(self.pipeline.name, **freshness(self.pipeline, progress), **lag)


class Moving(Protocol):
    """Whether a stream gets on."""

    @property
    def waits(self) -> bool: ...

    @property
    def stuck(self) -> bool: ...

    @property
    def calm(self) -> bool: ...


class Motion:
    """What was seen of one query since it began."""

    def __init__(self, query: Query, spark: SparkSession) -> None:
        self.query, self.spark = query, spark
        self.began_at = self.moved_at = time.monotonic()
        self.seen: object = None
        self.waits = False  # its newest look at Kafka found nothing to do

    def update(self) -> None:
        """Ask the query how it is; to be called every now and then."""
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


def tasks_ended(spark: SparkSession, query: Query) -> list[tuple[int, int]]:
    """The stages that now run for a query, each with the number of its tasks that ended."""
    tracker = spark.sparkContext.statusTracker()
    mine = set(tracker.getJobIdsForGroup(str(query.runId))) & set(tracker.getActiveJobsIds())
    jobs = [tracker.getJobInfo(number) for number in sorted(mine)]
    stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
    return [(stage.stageId, stage.numCompletedTasks) for stage in stages if stage is not None]
