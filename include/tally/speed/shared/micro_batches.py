"""What is done with each micro-batch of a topic's stream, for all pipelines that take part in it.

It is first taken, in one commit of the inbox, with the clock that judged it; then each pipeline's rows are written from
there. Whoever is killed in between finds in the inbox what is left to write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from tally.base.duration import millis, parse_duration
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.control import leases, ledger, streams
from tally.control.ledger import NEAR, Ranges
from tally.control.shares import GENERATION, stream_of
from tally.control.store import now_ms
from tally.sources import kafka
from tally.speed import checkpoint
from tally.speed.progress import Gain
from tally.speed.shared.clock import Clock
from tally.speed.shared.events import Judged, are_few, offsets
from tally.speed.shared.ids import Ids
from tally.speed.shared.inbox import FOLD_EVERY, Inbox, Taken, ends_of
from tally.speed.shared.journal import Journal
from tally.speed.shared.member import Member
from tally.speed.shared.missed import Missed
from tally.speed.shared.plan import check_follows, planned, read_in_order
from tally.speed.shared.reading import FEW_ROWS, Bounds, Reading
from tally.speed.upkeep.keeper import Keeper

# Pipelines of a micro-batch at a time: while one is planned on one core, another one's job runs on the other. More of
# them would each be slower.
AT_ONCE = 2
Totals = dict[tuple[str, str], pa.Table]
# Among the pipelines' totals the inbox has, under this name, the ids that each micro-batch brought.
IDS = ("", "ids")


class MicroBatches:
    """The micro-batches of a topic, one after the other, in one driver under the inbox's lease."""

    def __init__(self, keeper: Keeper, topic: Topic, inbox: Inbox, journal: Journal) -> None:
        self.keeper, self.topic, self.inbox, self.journal = keeper, topic, inbox, journal
        self.root, self.spark = checkpoint.topic_root(topic.name), keeper.spark
        self.reading = Reading(self.spark, topic)
        self.missed = Missed(self.reading, inbox, journal)
        self.gain = Gain()
        self.began = False  # the first one is over
        self.turn_to_compile, self.may_compile = threading.Lock(), True
        self.repair()
        self.ids = self.remembered()

    def repair(self) -> None:
        """Have the newest micro-batch in the ledger: a driver may have been killed before it told of it."""
        newest, known = self.inbox.newest(), ledger.newest(*stream_of(self.topic.name))
        if newest is not None and (known is None or known.batch < newest.batch):
            self.record(newest)

    def remembered(self) -> Ids | None:
        """The ids that the inbox has of the micro-batches so far, where the topic's events have any."""
        newest, ids = self.inbox.newest(), Ids(millis(self.topic.lateness), self.topic.unique or "")
        if self.topic.unique and newest is not None:
            ids.restore((row.totals for row in self.inbox.rows(*IDS)), newest.clock.watermark)
        return ids if self.topic.unique else None

    def take(self, batch: int, members: Sequence[Member]) -> None:
        """Take a micro-batch for all of these, then write each one's rows."""
        began = time.monotonic()
        self.may_compile = self.began
        taken, totals = self.taken(batch, members)
        self.each(members, batch, lambda one: self.write(one, totals.get(one.place), taken))
        if batch and batch % min(FOLD_EVERY, settings().fold_after_batches or FOLD_EVERY) == 0:
            self.fold(taken, members)
        self.show(taken, [one for one in members if one.error is None], time.monotonic() - began)
        self.began = True

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
        reached = ends_of(ranges, self.topic.name)
        return {p: end - reached.get(p, 0) for p, end in kafka.end_offsets(self.topic.name).items()}

    def fold(self, taken: Taken, members: Sequence[Member]) -> None:
        """Keep in the inbox one row of each pipeline, with its open groups."""
        wholes = {one.place: one.open.totals for one in members if one.error is None and one.open.totals is not None}
        if self.ids is not None:
            wholes[IDS] = self.ids.held()
        self.inbox.fold(taken, wholes)


def idle_ms() -> int:
    return millis(parse_duration(settings().idle, field="TALLY_IDLE"))
