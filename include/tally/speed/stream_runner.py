"""One pipeline's stream in a driver: brought nearer to what people want of it, turn by turn, and tried again alone."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any, Protocol

from pyspark.sql.streaming import StreamingQuery
from sqlalchemy.exc import SQLAlchemyError

from tally.base.errors import AnswerIsNo, DataLost, DefinitionError, StreamFailed, TallyError
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import incidents, leases, ledger, streams
from tally.control.store import now_ms
from tally.host import lock
from tally.host.waiting import backoff, until
from tally.sources import kafka
from tally.speed import query as queries
from tally.speed.progress import STUCK_SECONDS, Gain, Motion, behind, ended_at, freshness
from tally.speed.refusal import as_refusal, diagnosed, told
from tally.speed.upkeep.keeper import Keeper

log = logging.getLogger(__name__)
# A topic's identity costs one request; a recreated topic is told within so many seconds.
IDENTITY_SECONDS = 15.0
# Who stops a stream waits so long for each running micro-batch; the launcher kills it later than that.
LAST_BATCH_SECONDS = 5.0
# A try costs a start of a query, a second or two of both cores: a minute between tries is little, and heals soon.
FIRST_BACKOFF, MOST_BACKOFF = 2.0, 60.0
# What Tally itself refuses does not pass by itself: a torn file may have been half written, hence not the first time.
REFUSALS = 3
FAULTS = ("stream failed", "stream refused", "data lost")


class Host(Protocol):
    """What a stream needs of the driver that it is in."""

    app: str
    until_caught_up: bool
    keeper: Keeper | None

    def require_jvm(self) -> None: ...

    def adopted_by(self, held: lock.Lock) -> None: ...


class Hosted:
    """One pipeline in this driver: its running query, or when to try again."""

    def __init__(self, driver: Host, pipeline: Pipeline) -> None:
        self.driver, self.pipeline = driver, pipeline
        self.query: StreamingQuery | None = None
        self.held: lock.Lock | None = None
        self.lease: leases.Lease | None = None
        self.failed: TallyError | None = None
        self.gave_up = self.done = self.stopped = self.fenced = self.moved = False
        self.restarts = int(streams.wanted(pipeline.name)["restarts"])
        self.resting = ""
        self.told_batch, self.gain = -1, Gain()
        self.checked_at = time.monotonic()
        self.motion: Motion | None = None
        self.proven = False  # since it began: a micro-batch ended, or there was none to make
        known = streams.stream(pipeline.name) or {}
        mine = known.get("version") == pipeline.version
        self.failures = int(known["failures"]) if mine else 0  # what failed under the last driver may fail here too
        wait = (int(known["retry_at"]) - now_ms()) / 1000 if mine and self.failures else 0.0
        self.retry_at = time.monotonic() + min(max(0.0, wait), MOST_BACKOFF)

    def tend(self) -> None:
        """Bring the query nearer to its desired state."""
        wish = streams.wanted(self.pipeline.name)
        if self.fenced:
            self.taken_over()
        running = wish["state"] == "running"
        self.stopped = wish["state"] == "stopped"
        if int(wish["restarts"]) != self.restarts and not self.begin_anew(int(wish["restarts"])):
            return
        self.gave_up = self.gave_up and running  # who pauses and resumes has seen to it
        if self.done or self.gave_up:
            return
        if self.query is None:
            if running and time.monotonic() >= self.retry_at:
                self.begin()
            elif not running:
                self.rest(wish["state"])
        elif not self.query.isActive:
            self.ended()
        elif not running:
            self.let_go()
            self.rest(wish["state"])
        else:
            self.look_after()

    def begin_anew(self, restarts: int) -> bool:
        """A person wished for a restart: as if the driver had just begun, with the definition as it is now.

        False while the old definition's table cannot be let go of: the wish stands, and the next turn tries again.
        """
        self.let_go()
        now = self.pipeline
        with suppress(TallyError):  # a catalogue that cannot be read now changes nothing
            now = catalogue().pipeline(self.pipeline.name)
        if now.version != self.pipeline.version:
            if not self.quiet():
                return False
            self.release()
        self.pipeline, self.restarts = now, restarts
        self.failures, self.retry_at, self.gave_up = 0, 0.0, False
        return True

    def rest(self, state: str) -> None:
        """Show that it is paused or stopped; a stopped one also lets go of its table."""
        if self.resting == state or (self.stopped and not self.quiet()):
            return
        if self.stopped:
            self.release()
        streams.show(self.pipeline.name, state=state, reason="", app=self.driver.app, failures=0, retry_at=0)
        self.failures, self.retry_at = 0, 0.0
        self.done = self.driver.until_caught_up
        self.resting = state  # last: what the control store did not take is done again

    def quiet(self) -> bool:
        """Whether nothing here writes the table any more: a fold may outlast the query, and a second one be let in."""
        return self.driver.keeper is None or self.driver.keeper.leaves(self.pipeline)

    def begin(self) -> None:
        pipeline = self.pipeline
        self.resting = ""
        if self.lease is None and not self.take():
            return
        try:
            anew = {} if self.failures else {"reason": ""}
            streams.show(
                pipeline.name, state="starting", version=pipeline.version, app=self.driver.app,
                restarts=self.restarts, **anew,
            )  # fmt: skip
            assert self.driver.keeper is not None and self.lease is not None
            self.proven = False
            self.query = queries.start(
                self.driver.keeper, pipeline, self.lease, self.applied, until_caught_up=self.driver.until_caught_up
            )
            self.motion, self.gain = Motion(self.query, self.driver.keeper.spark), Gain()
            streams.show(pipeline.name, state="running")
        except Exception as error:
            self.driver.require_jvm()
            self.fail(as_refusal(error, pipeline))

    def take(self) -> bool:
        """Become the one writer of the stream's table; whoever is it already keeps it, and its row in the store."""
        pipeline = self.pipeline
        try:
            self.held = lock.hold(lock.table_path("speed", pipeline.name, pipeline.version))
            self.lease = leases.take(leases.name_of(pipeline))
            self.driver.adopted_by(self.held)
        except Exception as error:
            self.release()  # all of it: half a writer would never write, and keep others from it
            if not isinstance(error, TallyError):
                raise
            log.warning("%s", told(error, pipeline), extra={"pipeline": pipeline.name})
            self.retry_at = time.monotonic() + MOST_BACKOFF
            if self.driver.until_caught_up:
                self.done, self.failed = True, error
            return False
        return True

    def beat(self) -> None:
        """Say that its writer lives; one that another has replaced stops before it writes again."""
        lease = self.lease
        if lease is not None and not leases.beat(lease) and self.lease is lease:  # else it was let go of meanwhile
            self.fenced = True

    def release(self) -> None:
        """Let go of the table, the lease first: nobody waits for one whose lock is free."""
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                leases.release(lease)
            except SQLAlchemyError:
                self.lease = lease  # it is still held: a later turn lets go of it
                raise
        if self.held is not None:
            self.held.release()
            self.held = None

    def applied(self, done: ledger.MicroBatch) -> None:
        """After each commit: the stream's row in the control store, and a clean slate for the backoff."""
        self.well(
            "it runs again", version=self.pipeline.version, generation=done.generation, app=self.driver.app,
            batch=done.batch, watermark=done.watermark, progressed_at=now_ms(),
        )  # fmt: skip

    def well(self, done: str, **more: Any) -> None:
        """What it, or its driver, failed of before is over."""
        self.failures = 0
        streams.show(self.pipeline.name, state="running", reason="", failures=0, retry_at=0, **more)
        incidents.close(self.pipeline.name, *FAULTS, done=done)
        self.proven = self.moved = True

    def look_after(self) -> None:
        """A running query: tell of its progress, end it when it is stuck, see that its topics are still the same."""
        self.tell()
        assert self.motion is not None
        self.motion.look()
        if self.motion.calm and not self.proven:  # without records, no micro-batch will ever say so
            self.well("it runs again, and no record waits")
        if self.motion.stuck:
            self.let_go()
            self.fail(
                StreamFailed(
                    f"a micro-batch stood still for {STUCK_SECONDS:.0f} s: none of its tasks ended",
                    pipeline=self.pipeline.name, cure="it is begun again; look at the machine's disk and memory",
                )
            )  # fmt: skip
            return
        if time.monotonic() - self.checked_at > IDENTITY_SECONDS:
            self.checked_at = time.monotonic()
            self.check_identity()

    def waits(self) -> bool:
        """Whether no micro-batch of it runs or is due: it has none to read, or is to rest, or is tried again later."""
        return self.query is None or (self.motion is not None and self.motion.waits)

    def tell(self) -> None:
        """What the newest micro-batch's progress says: how fresh it made the windows, how fast it ran, what waits."""
        assert self.query is not None
        progress = self.query.lastProgress
        if not progress or progress["batchId"] == self.told_batch or not progress["numInputRows"]:
            return
        self.told_batch = progress["batchId"]
        waiting = behind(progress)
        lag = {} if waiting is None else {"behind": waiting, "gaining": self.gain.seen(ended_at(progress), waiting)}
        streams.show(self.pipeline.name, **freshness(self.pipeline, progress), **lag)

    def ended(self) -> None:
        """A query that is over: caught up, or failed with a cause worth saying."""
        assert self.query is not None
        if self.lease is not None and not leases.beat(self.lease):  # of that it ended, and the row is another's now
            self.taken_over()
            return
        error: Exception | None = self.query.exception()
        self.query = None
        if error is None:
            error = self.tidied()
        if error is None:
            self.done = True
            streams.show(self.pipeline.name, state="stopped", reason="caught up")
        else:
            self.fail(diagnosed(error, self.pipeline))

    def taken_over(self) -> None:
        """Another driver writes the table: end the query at once, leave its row to that one, and look again later."""
        with suppress(Exception):
            if self.query is not None:
                self.query.stop()
        self.query, self.lease, self.fenced = None, None, False
        self.release()
        self.retry_at = time.monotonic() + MOST_BACKOFF
        error = leases.Fenced(
            "another driver has taken its table over", pipeline=self.pipeline.name, cure="none: it runs"
        )
        log.warning("%s", error, extra={"pipeline": self.pipeline.name})
        if self.driver.until_caught_up:
            self.done, self.failed = True, error

    def tidied(self) -> Exception | None:
        """What the last fold of a stream raised, once it is over."""
        assert self.driver.keeper is not None
        try:
            self.driver.keeper.finish(self.pipeline)
        except Exception as error:
            return error
        return None

    def fail(self, error: TallyError) -> None:
        """Say what went wrong and try again later; what does not pass by itself is given up, with its cure."""
        self.failures += 1
        lost = isinstance(error, DataLost)
        refused = isinstance(error, AnswerIsNo | DefinitionError) and not lost
        self.gave_up = lost or (refused and self.failures >= REFUSALS)
        wait = backoff(self.failures, FIRST_BACKOFF, MOST_BACKOFF)
        self.retry_at = time.monotonic() + wait
        if self.driver.until_caught_up:
            self.done, self.failed = True, error
        elif self.gave_up:
            self.failed = error
        reason = str(error).split("\n")[0]
        state = "data_lost" if lost else "gave_up" if self.gave_up else "failed"
        streams.show(
            self.pipeline.name, state=state, reason=reason, app=self.driver.app, failures=self.failures,
            retry_at=now_ms() + int(wait * 1000),
        )  # fmt: skip
        after = "it stays stopped" if self.gave_up or self.done else f"next try in {wait:.0f} s, from where it stopped"
        cause = "data lost" if lost else "stream refused" if refused else "stream failed"
        incidents.report(self.pipeline.name, cause, reason, cure=error.cure or "", done=after)
        log.error("%s\n  %s", told(error, self.pipeline), after, extra={"pipeline": self.pipeline.name})

    def check_identity(self) -> None:
        try:
            for topic in self.pipeline.reads:
                kafka.check_identity(topic.name, kafka.HURRY)
        except DataLost as error:
            assert self.query is not None
            self.query.stop()
            self.query = None
            self.fail(error)
        except TallyError:
            pass  # Kafka does not answer: the query itself waits for it

    def let_go(self) -> None:
        """Stop a query, between two micro-batches where one ends in time; else what was planned is replayed."""
        if self.query is None:
            return
        query = self.query
        with suppress(Exception):
            until(
                lambda: not (query.isActive and query.status["isTriggerActive"]), seconds=LAST_BATCH_SECONDS, every=0.02
            )
            query.stop()
        self.query = None
        streams.show(self.pipeline.name, state="stopped", reason="")
