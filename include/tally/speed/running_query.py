"""A query that runs: how it gets on, whether it may go on as it is, and how it is ended."""

from __future__ import annotations

import time
from contextlib import suppress

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tally.base.errors import DataLost, StreamFailed, TallyError
from tally.catalog.spec import Pipeline
from tally.host.waiting import until
from tally.sources import kafka
from tally.speed.progress import STUCK_SECONDS, Motion, Moving, Shown
from tally.speed.shared.member import Member

# A topic's identity costs one request; a recreated topic is told within so many seconds.
IDENTITY_SECONDS = 15.0
# Who stops a stream waits so long for each running micro-batch; the launcher kills it later than that.
LAST_BATCH_SECONDS = 5.0


class RunningQuery:
    """One pipeline's query, or its part in one that it shares, from begin to end, with what was seen of it."""

    def __init__(self, query: StreamingQuery | Member, pipeline: Pipeline, spark: SparkSession) -> None:
        self.query, self.pipeline = query, pipeline
        self.own: tuple[Motion, Shown] | None = None
        if isinstance(query, Member):  # the stream that it is part of is asked, and shown, once for all
            self.motion: Moving = query
        else:
            motion = Motion(query, spark)
            self.motion, self.own = motion, (motion, Shown(pipeline, query))
        self.checked_at = time.monotonic()

    @property
    def active(self) -> bool:
        return bool(self.query.isActive)

    def update(self) -> None:
        """Ask it how it is, and show its newest progress; to be called every now and then."""
        if self.own is not None:
            motion, shown = self.own
            shown.update()
            motion.update()

    def stuck(self) -> StreamFailed | None:
        """Why it is to be begun again, where none of its tasks ended for long."""
        if not self.motion.stuck:
            return None
        return StreamFailed(
            f"a micro-batch stood still for {STUCK_SECONDS:.0f} s: none of its tasks ended",
            pipeline=self.pipeline.name,
            cure="it is begun again; look at the machine's disk and memory",
        )

    def lost(self) -> DataLost | None:
        """Why it may not go on, where a topic's name means another topic now; asked of Kafka now and then."""
        if time.monotonic() - self.checked_at <= IDENTITY_SECONDS:
            return None
        self.checked_at = time.monotonic()
        try:
            for topic in self.pipeline.reads:
                kafka.check_identity(topic.name, kafka.HURRY)
        except DataLost as error:
            return error
        except TallyError:
            pass  # Kafka does not answer: the query itself waits for it
        return None

    def let_go(self) -> None:
        """End it, between two micro-batches where one ends in time; else what was planned is replayed."""
        with suppress(Exception):
            until(lambda: not (self.active and self.busy), seconds=LAST_BATCH_SECONDS, every=0.02)
        with suppress(Exception):  # also where a JVM that has gone could not be asked
            self.query.stop()

    @property
    def busy(self) -> bool:
        """Whether a micro-batch of it runs now."""
        return bool(self.query.status["isTriggerActive"])
