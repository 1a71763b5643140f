"""The one query that reads a topic for all pipelines that share it: fetched and decoded once, taken up by each.

A micro-batch is first taken, in one commit of the inbox, with the clock that judged it; then each pipeline's rows are
written from there. Whoever is killed in between finds in the inbox what is left to write.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tally.base.duration import millis, parse_duration
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.control import leases, ledger, streams
from tally.control.ledger import NEAR, Ranges
from tally.control.shares import GENERATION, stream_of
from tally.control.store import now_ms
from tally.parts import Function
from tally.sources import kafka
from tally.speed import checkpoint, commit
from tally.speed.progress import Gain, Motion
from tally.speed.shared.clock import Clock
from tally.speed.shared.events import Judged, are_few, offsets
from tally.speed.shared.ids import Ids
from tally.speed.shared.inbox import FOLD_EVERY, Inbox, Taken
from tally.speed.shared.journal import Journal
from tally.speed.shared.member import Applied, Member
from tally.speed.shared.missed import Missed
from tally.speed.shared.opening import Opening
from tally.speed.shared.plan import check_follows, planned, read_in_order
from tally.speed.shared.reading import FEW_ROWS, Bounds, Reading
from tally.speed.upkeep.keeper import Keeper
from tally.speed.writer import Writer

log = logging.getLogger(__name__)
# Pipelines of a micro-batch at a time: while one is planned on one core, another one's job runs on the other. More of
# them would each be slower.
AT_ONCE = 2
# Who lacks no more micro-batches than these takes them while the others wait.
FEW = 2
Totals = dict[tuple[str, str], pa.Table]
# Among the pipelines' totals the inbox has, under this name, the ids that each micro-batch brought.
IDS = ("", "ids")


class TopicStream:
    """A topic's stream in this driver, with the pipelines that now take part in it; what is over is not begun again."""

    def __init__(self, keeper: Keeper, topic: Topic, writer: Writer, *, until_caught_up: bool) -> None:
        assert writer.lease is not None
        self.writer = writer
        self.keeper, self.topic, self.until_caught_up = keeper, topic, until_caught_up
        self.root = checkpoint.topic_root(topic.name)
        self.inbox = Inbox(topic.name, GENERATION, writer.lease)
        self.journal = Journal(self.root, lambda name: int(streams.wanted(name)["restarts"]))
        self.members: list[Member] = []
        self.entering: list[Member] = []  # who follows the stream until they have what they missed
        self.query: StreamingQuery | None = None
        self.motion: Motion | None = None  # of the query
        self.fault: Exception | None = None
        self.began = False  # its first micro-batch is over
        self.left = False
        self.gain = Gain()
        self.turn = threading.Lock()  # held while a micro-batch is taken, and while the members change
        self.opening = Opening(keeper.spark, topic, self.reached())
        self.reading = Reading(keeper.spark, topic)
        self.missed = Missed(self.reading, self.inbox, self.journal)
        self.turn_to_compile, self.may_compile = threading.Lock(), True
        self.repair()
        self.ids = self.remembered()

    @property
    def spark(self) -> SparkSession:
        return self.keeper.spark

    def reached(self) -> dict[int, int]:
        """How far each partition was read."""
        newest = self.inbox.newest()
        return {} if newest is None else {p: to for p, (_, to) in newest.ranges[self.topic.name].items()}

    def repair(self) -> None:
        """Have the newest micro-batch in the ledger: a driver may have been killed before it told of it."""
        newest, known = self.inbox.newest(), ledger.newest(*stream_of(self.topic.name))
        if newest is not None and (known is None or known.batch < newest.batch):
            self.record(newest)

    def remembered(self) -> Ids | None:
        """The ids that the inbox has of the micro-batches so far, where the topic's events have any."""
        newest, ids = self.inbox.newest(), Ids(millis(self.topic.lateness))
        if self.topic.unique and newest is not None:
            ids.restore((row.totals for row in self.inbox.rows(*IDS)), newest.clock.watermark)
        return ids if self.topic.unique else None

    # Who takes part.

    def join(self, target: commit.Target, function: Function, applied: Applied) -> Member:
        """Let a pipeline take part; what it has missed it takes first, beside the others where that is much."""
        self.journal.check(target, self.topic.name)
        member = Member(self, target, function, applied, self.reading.shape)
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

    # A micro-batch.

    def apply(self, _: DataFrame, batch: int) -> None:
        """Take a micro-batch for all who take part, then write each one's rows."""
        failpoint("shared.begin")
        began = time.monotonic()
        with self.turn:
            members = [one for one in self.members if one.error is None]
            self.may_compile = self.began
            taken, totals = self.taken(batch, members)
            self.each(members, batch, lambda one: self.write(one, totals.get(one.place), taken))
            if batch and batch % min(FOLD_EVERY, settings().fold_after_batches or FOLD_EVERY) == 0:
                self.fold(taken, members)
            self.show(taken, [one for one in members if one.error is None], time.monotonic() - began)
            self.began = True
        failpoint("shared.end")

    def show(self, taken: Taken, members: Sequence[Member], seconds: float) -> None:
        """How fresh a micro-batch made the windows, how fast it ran, and what waits: of each who took part."""
        ranges, now = taken.ranges[self.topic.name], now_ms()
        waiting = sum(max(0, left) for left in self.waiting(taken.ranges).values())
        told: dict[str, Any] = {
            "rows_per_second": sum(to - start for start, to in ranges.values()) / seconds,
            "took": seconds,
            "behind": waiting,
            "gaining": self.gain.seen(now, waiting),
        }
        if taken.clock.seen:
            told["freshness"] = max(0.0, (now - max(one.record for one in taken.clock.seen.values())) / 1000)
        for member in members:
            newest = max((one.event for one in taken.clock.seen.values()), default=None)
            window = {} if newest is None else {"newest_window": member.pipeline.slot(newest)}
            streams.show(member.pipeline.name, **told, **window)

    def taken(self, batch: int, members: Sequence[Member]) -> tuple[Taken, Totals]:
        """What a micro-batch comes to; once more, what the inbox has of it."""
        before = self.inbox.newest()
        if before is not None and before.batch == batch:
            return before, {}  # each takes from the inbox what its table lacks
        check_follows(self.topic, before, batch)
        ranges = read_in_order(checkpoint.planned(self.root, batch, [self.topic.name]).ranges)
        clock = before.clock if before is not None else Clock()
        totals = Totals()
        mine = ranges[self.topic.name]
        with self.judged(mine, batch, clock, members) as found:
            after = clock.after(found.seen, self.waiting(ranges), millis(self.topic.lateness), idle_ms())
            self.each(members, batch, lambda one: self.total(one, found, clock, totals))
        if self.ids is not None and found.brought is not None:
            totals[IDS] = self.ids.lasting(found.brought, after.watermark)
        taken = Taken(generation=GENERATION, batch=batch, ranges=ranges, late_watermark=clock.watermark, clock=after)
        self.leave_out(leases.lost(one.target.lease for one in members), members, totals)
        self.inbox.take(taken, totals)
        if self.ids is not None:
            self.ids.put(totals[IDS])
            self.ids.forget(taken.clock.watermark)
        self.record(taken)
        return taken, totals

    @contextmanager
    def judged(self, ranges: Bounds, batch: int, clock: Clock, members: Sequence[Member]) -> Iterator[Judged]:
        """A micro-batch's events; many are taken as they are read, where all pipelines can and nobody is suspected."""
        takings = {one.place: one.here.taking for one in members if one.here.taking is not None}
        if are_few(offsets(ranges)) or len(takings) < len(members) or any(map(self.journal.suspects, takings)):
            takings = {}
        with ExitStack() as opened:
            with ExitStack() as named:
                for place in takings:
                    named.enter_context(self.journal.running(place, batch))
                found = opened.enter_context(self.reading.judged(ranges, self.ids, clock.watermark, takings))
            yield found

    def total(self, member: Member, found: Judged, clock: Clock, into: Totals) -> None:
        into[member.place] = member.totals(found, clock.watermark, lambda: self.session_for(member, found))

    def session_for(self, member: Member, found: Judged) -> SparkSession:
        """What runs a pipeline's plans over so many events: compiled they are faster, but not the first time.

        So that no micro-batch waits for all of them to be compiled, one is in each micro-batch, and the others wait.
        """
        with self.turn_to_compile:
            if found.offsets > FEW_ROWS and not member.compiled and (not found.small or self.may_compile):
                member.compiled, self.may_compile = True, False
        return self.reading.session(found.offsets) if member.compiled else self.reading.interpreting

    def write(self, member: Member, totals: pa.Table | None, taken: Taken) -> None:
        """A member's rows of a micro-batch that the inbox has; whoever lacks more than that takes all it lacks."""
        if totals is None:
            self.missed.catch_up(member)
            return
        member.take(self.reading.session(totals.num_rows), totals, planned(taken), taken.clock.watermark)
        self.journal.outlived(member.place, taken.batch)
        self.keeper.after(member.pipeline, taken.batch, member.target.lease)
        failpoint("shared.after_member")

    def each(self, members: Sequence[Member], batch: int, act: Callable[[Member], None]) -> None:
        """Do it for each, some at a time; what goes wrong for one pipeline is its own: the others go on without it.

        Who may have ended a driver runs last, and alone.
        """

        def guarded(member: Member) -> None:
            if member.error is not None:
                return
            try:
                with self.journal.running(member.place, batch):
                    act(member)
            except Exception as error:
                member.error = error

        inherited = inheritable_thread_target(self.spark)(guarded)  # their jobs belong to this micro-batch
        suspects = [one for one in members if self.journal.suspects(one.place)]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="member") as pool:
            list(pool.map(inherited, [one for one in members if one not in suspects]))
        for member in suspects:
            guarded(member)
        if self.journal.over:  # the JVM has gone: what it left undone is the next driver's
            raise next(one.error for one in members if one.error is not None)

    def leave_out(self, lost: Mapping[str, leases.Fenced], members: Sequence[Member], totals: Totals) -> None:
        """Go on without those whose tables others write now."""
        for member in members:
            if (fenced := lost.get(member.target.lease.name)) is not None:
                member.error = fenced
                totals.pop(member.place, None)

    def record(self, taken: Taken) -> None:
        """Tell the ledger of a micro-batch of the topic."""
        name, version = stream_of(self.topic.name)
        entry = ledger.MicroBatch(
            pipeline=name, version=version, generation=taken.generation, batch=taken.batch, ranges=taken.ranges,
            late_watermark=taken.late_watermark, watermark=taken.clock.watermark, rows=0, delta_version=-1,
            committed_at=now_ms(), ids=NEAR,
        )  # fmt: skip
        ledger.record([entry])

    def waiting(self, ranges: Ranges) -> dict[int, int]:
        """How much Kafka holds of each partition past a micro-batch."""
        reached = {partition: to for partition, (_, to) in ranges[self.topic.name].items()}
        return {p: end - reached.get(p, 0) for p, end in kafka.end_offsets(self.topic.name).items()}

    def fold(self, taken: Taken, members: Sequence[Member]) -> None:
        """Keep in the inbox one row of each pipeline, with its open groups."""
        wholes = {one.place: one.open.totals for one in members if one.error is None and one.open.totals is not None}
        if self.ids is not None:
            wholes[IDS] = self.ids.held()
        self.inbox.fold(taken, wholes)


def job_group(member: Member) -> str:
    """The jobs of a pipeline that takes what it missed."""
    return f"{member.pipeline.name} {member.pipeline.version} {id(member)}"


def idle_ms() -> int:
    return millis(parse_duration(settings().idle, field="TALLY_IDLE"))
