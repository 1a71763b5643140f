"""The one query that reads a topic for all pipelines that share it, and who takes part in it: some come, some leave."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.control import leases, streams
from tally.control.shares import GENERATION, stream_of
from tally.parts import Function
from tally.speed import checkpoint, commit
from tally.speed.progress import Motion
from tally.speed.shared.inbox import Inbox
from tally.speed.shared.journal import Journal
from tally.speed.shared.member import Applied, Member
from tally.speed.shared.micro_batches import MicroBatches
from tally.speed.shared.opening import Opening
from tally.speed.upkeep.keeper import Keeper
from tally.speed.writer import Writer

# Who lacks no more micro-batches than these takes them while the others wait.
FEW = 2


class TopicStream:
    """A topic's stream in this driver, with the pipelines that now take part in it; what is over is not begun again."""

    def __init__(self, keeper: Keeper, topic: Topic, writer: Writer, *, until_caught_up: bool) -> None:
        assert writer.lease is not None
        self.writer = writer
        self.spark, self.topic, self.until_caught_up = keeper.spark, topic, until_caught_up
        self.root = checkpoint.topic_root(topic.name)
        self.inbox = Inbox(topic.name, GENERATION, writer.lease)
        self.journal = Journal(self.root, lambda name: int(streams.wanted(name)["restarts"]))
        self.members: list[Member] = []
        self.entering: list[Member] = []  # who follows the stream until they have what they missed
        self.query: StreamingQuery | None = None
        self.motion: Motion | None = None  # of the query
        self.fault: Exception | None = None
        self.left = False
        self.turn = threading.Lock()  # held while a micro-batch is taken, and while the members change
        newest = self.inbox.newest()
        self.opening = Opening(keeper.spark, topic, newest.ends(topic.name) if newest is not None else {})
        self.micro_batches = MicroBatches(keeper, topic, self.inbox, self.journal)
        self.missed = self.micro_batches.missed

    def join(self, target: commit.Target, function: Function, applied: Applied) -> Member:
        """Let a pipeline take part; what it has missed it takes first, beside the others where that is much."""
        self.journal.check(target, self.topic.name)
        member = Member(self, target, function, applied, self.micro_batches.reading.shape)
        with self.turn:
            if self.until_caught_up or self.missed.count(member) <= FEW:
                self.let_in(member)
                return member
        follow = inheritable_thread_target(self.spark)(self.follow)
        member.entering = threading.Thread(target=follow, args=(member,), name="catch up", daemon=True)
        self.entering.append(member)
        member.entering.start()
        return member

    def let_in(self, member: Member) -> None:
        self.missed.catch_up(member)
        self.members = [*self.members, member]

    def follow(self, member: Member) -> None:
        """Have a pipeline follow the stream until it lacks little, and let it in then."""
        self.spark.sparkContext.setJobGroup(job_group(member), f"{member.pipeline.name} takes what it missed")
        try:
            while not (self.over or member.left):
                self.missed.catch_up(member)
                with self.turn:
                    if not member.left and self.missed.count(member) <= FEW:
                        self.let_in(member)
                        return
        except Exception as error:
            member.error = error
        finally:
            self.entering.remove(member)
            member.entering = None

    def leave(self, member: Member) -> None:
        """Go on without a pipeline, after the micro-batch that runs; without any, end."""
        member.left = True
        if (follows := member.entering) is not None:
            with suppress(Exception):  # of a JVM that has gone nothing runs any more
                self.spark.sparkContext.cancelJobGroup(job_group(member))
            follows.join()
        with self.turn:
            self.members = [one for one in self.members if one is not member]
            self.left = not self.members and not self.entering
        if self.left:
            self.end()

    def close(self) -> None:
        """See that it writes nothing any more, and let go of the inbox: another stream of the topic may be begun."""
        for member in list(self.entering):
            self.leave(member)
        self.end()
        with self.turn:
            self.writer.release()

    def end(self) -> None:
        """Have no query that runs."""
        if self.query is not None:
            with suppress(Exception):
                self.query.stop()

    @property
    def over(self) -> bool:
        return self.left or self.fault is not None or (self.query is not None and not self.query.isActive)

    def exception(self) -> Exception | None:
        return self.fault or (self.query.exception() if self.query is not None else None)

    def tend(self) -> None:
        """Begin once somebody takes part, and end when nobody does; what keeps it from beginning is told to all."""
        for member in self.members:
            if member.error is not None:
                self.leave(member)
        if self.writer.fenced and self.fault is None:
            self.fault = leases.Fenced("another driver reads the topic now", field=self.inbox.lease.name, cure="none")
            self.end()
        if self.motion is not None:
            self.motion.update()
        if self.query is not None or self.over or not self.members:
            return
        try:
            self.query = self.begun()
            self.motion = Motion(self.query, self.spark)
        except Exception as error:
            self.fault = error

    def begun(self) -> StreamingQuery:
        spark, run, ranges = self.spark, settings(), self.opening.ranges.result()
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.topic.name)
        pace: dict[str, Any] = {"processingTime": f"{run.trigger_seconds} seconds"}
        writer = ranges.writeStream.queryName(stream_of(self.topic.name)[0]).option("checkpointLocation", self.root)
        writer = writer.trigger(availableNow=True) if self.until_caught_up else writer.trigger(**pace)
        return writer.foreachBatch(self.apply).start()

    def apply(self, _: DataFrame, batch: int) -> None:
        """A micro-batch, for all who take part by now."""
        failpoint("shared.begin")
        with self.turn:
            self.micro_batches.take(batch, [one for one in self.members if one.error is None])
        failpoint("shared.end")


def job_group(member: Member) -> str:
    """The jobs of a pipeline that takes what it missed."""
    return f"{member.pipeline.name} {member.pipeline.version} {id(member)}"
