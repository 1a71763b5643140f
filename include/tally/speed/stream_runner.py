"""One pipeline's stream in a driver: brought nearer to what people want of it, turn by turn, and tried again alone."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, Protocol

from pyspark.sql import DataFrame

from tally.base.errors import TallyError
from tally.base.failpoints import failpoint
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline, Topic
from tally.control import incidents, leases, ledger, streams
from tally.control.store import now_ms
from tally.host import lock
from tally.parts import Function
from tally.speed import commit
from tally.speed import query as queries
from tally.speed.refusal import as_refusal, diagnosed, with_name
from tally.speed.running_query import RunningQuery
from tally.speed.shared.path import is_shared
from tally.speed.shared.topic_stream import TopicStream
from tally.speed.tries import FAULTS, Tries, report
from tally.speed.upkeep.keeper import Keeper
from tally.speed.writer import Writer

log = logging.getLogger(__name__)


class Host(Protocol):
    """What a stream needs of the driver that it is in."""

    app: str
    until_caught_up: bool
    keeper: Keeper | None

    def require_jvm(self) -> None: ...

    def adopted_by(self, held: lock.Lock) -> None: ...

    def topic_stream(self, topic: Topic) -> TopicStream: ...

    def function(self, pipeline: Pipeline) -> Function: ...


class StreamRunner:
    """One pipeline in this driver: its running query, or when to try again."""

    def __init__(self, driver: Host, pipeline: Pipeline) -> None:
        self.driver, self.pipeline = driver, pipeline
        self.writer, self.tries = Writer(), Tries(pipeline)
        self.running: RunningQuery | None = None
        self.failed: TallyError | None = None
        self.gave_up = self.done = self.stopped = self.moved = False
        self.proven = False  # since it began: a micro-batch ended, or there was none to make
        self.restarts = int(streams.wanted(pipeline.name)["restarts"])
        self.resting = ""

    def tend(self) -> None:
        """Bring the query nearer to its desired state."""
        wish = streams.wanted(self.pipeline.name)
        if self.writer.fenced:
            self.taken_over()
        wanted = wish["state"] == "running"
        self.stopped = wish["state"] == "stopped"
        if int(wish["restarts"]) != self.restarts and not self.begin_anew(int(wish["restarts"])):
            return
        self.gave_up = self.gave_up and wanted  # who pauses and resumes has seen to it
        if self.done or self.gave_up:
            return
        if self.running is None:
            if wanted and self.tries.due:
                self.begin()
            elif not wanted:
                self.rest(wish["state"])
        elif not self.running.active:
            self.ended(self.running)
        elif not wanted:
            self.let_go()
            self.rest(wish["state"])
        else:
            self.look_after(self.running)

    @property
    def is_wanted(self) -> bool:
        """Whether it is to run now."""
        return bool(streams.wanted(self.pipeline.name)["state"] == "running")

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
            self.writer.release()
        self.pipeline, self.restarts, self.gave_up = now, restarts, False
        self.tries.forget()
        return True

    def rest(self, state: str) -> None:
        """Show that it is paused or stopped; a stopped one also lets go of its table."""
        if self.resting == state or (self.stopped and not self.quiet()):
            return
        if self.stopped:
            self.writer.release()
        streams.show(self.pipeline.name, state=state, reason="", app=self.driver.app, failures=0, retry_at=0)
        self.tries.forget()
        self.done = self.driver.until_caught_up
        self.resting = state  # last: what the control store did not take is done again

    def quiet(self) -> bool:
        """Whether nothing here writes the table any more: a fold may outlast the query, and a second one be let in."""
        return self.driver.keeper is None or self.driver.keeper.leaves(self.pipeline)

    def begin(self) -> None:
        """Have a running query; what keeps it from beginning is a failure like any other."""
        pipeline = self.pipeline
        self.resting = ""
        if self.writer.lease is None and not self.take():
            return
        try:
            self.show_starting()
            self.running = self.started()
            streams.show(pipeline.name, state="running")
        except Exception as error:
            self.driver.require_jvm()
            self.fail(as_refusal(error, pipeline))

    def take(self) -> bool:
        """Become the one writer of the stream's table; whoever is it already keeps it, and its row in the store."""
        pipeline = self.pipeline
        try:
            self.writer.take(leases.name_of(pipeline), self.driver.adopted_by)
        except TallyError as error:
            log.warning("%s", with_name(error, pipeline), extra={"pipeline": pipeline.name})
            self.wait_for_other(error)
            return False
        return True

    def show_starting(self) -> None:
        """The stream's row in the control store; after a failure it keeps the reason until a micro-batch ends."""
        anew = {} if self.tries.failures else {"reason": ""}
        streams.show(
            self.pipeline.name, state="starting", version=self.pipeline.version, app=self.driver.app,
            restarts=self.restarts, **anew,
        )  # fmt: skip

    def started(self) -> RunningQuery:
        keeper, lease = self.driver.keeper, self.writer.lease
        assert keeper is not None and lease is not None
        self.proven = False
        function = self.driver.function(self.pipeline)
        if is_shared(function):
            target = queries.prepare_shared(function.definition, lease)
            member = self.driver.topic_stream(self.pipeline.reads[0]).join(target, function, self.applied)
            return RunningQuery(member, self.pipeline, keeper.spark)
        ready = queries.prepare(function.definition, lease)
        sink = self.sink(keeper, ready.target)
        query = queries.begin(ready, sink, until_caught_up=self.driver.until_caught_up)
        return RunningQuery(query, self.pipeline, keeper.spark)

    def sink(self, keeper: Keeper, target: commit.Target) -> queries.Sink:
        """What is done with each micro-batch: one commit, then word of it, then the keeper's turn."""

        def apply(rows: DataFrame, batch: int) -> None:
            failpoint("speed.begin")
            self.applied(commit.write(rows, batch, target))
            keeper.after(target.pipeline, batch, target.lease)
            failpoint("speed.end")

        return apply

    def applied(self, done: ledger.MicroBatch) -> None:
        """After each commit: the stream's row in the control store, and a clean slate for the backoff."""
        self.well(
            "it runs again", version=self.pipeline.version, generation=done.generation, app=self.driver.app,
            batch=done.batch, watermark=done.watermark, progressed_at=now_ms(),
        )  # fmt: skip

    def well(self, done: str, **more: Any) -> None:
        """What it, or its driver, failed of before is over."""
        self.tries.failures = 0
        streams.show(self.pipeline.name, state="running", reason="", failures=0, retry_at=0, **more)
        incidents.close(self.pipeline.name, *FAULTS, done=done)
        self.proven = self.moved = True

    def look_after(self, running: RunningQuery) -> None:
        """A running query: show its progress, end it when it is stuck, see that its topics are still the same."""
        running.update()
        if running.motion.calm and not self.proven:  # without records, no micro-batch will ever say so
            self.well("it runs again, and no record waits")
        if stuck := running.stuck():
            self.let_go()
            self.fail(stuck)
        elif lost := running.lost():
            running.query.stop()
            self.running = None
            self.fail(lost)

    def waits(self) -> bool:
        """Whether no micro-batch of it runs or is due: it has none to read, or is to rest, or is tried again later."""
        return self.running is None or self.running.motion.waits

    def ended(self, over: RunningQuery) -> None:
        """A query that is over: caught up, or failed with a cause worth saying."""
        if self.writer.replaced():  # of that it ended, and the row is another's now
            self.taken_over()
            return
        error: Exception | None = over.query.exception()
        self.running = None
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
            if self.running is not None:
                self.running.query.stop()
        self.running = None
        self.writer.yield_to_other()
        error = leases.Fenced(
            "another driver has taken its table over", pipeline=self.pipeline.name, cure="none: it runs"
        )
        log.warning("%s", error, extra={"pipeline": self.pipeline.name})
        self.wait_for_other(error)

    def wait_for_other(self, error: TallyError) -> None:
        """Another writes the table: look again later, or end with that where it was only to catch up."""
        self.tries.put_off()
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
        setback = self.tries.count(error)
        self.gave_up = setback.gave_up
        if self.driver.until_caught_up:
            self.done, self.failed = True, error
        elif self.gave_up:
            self.failed = error
        report(self.pipeline, setback, app=self.driver.app, over=self.gave_up or self.done)

    def let_go(self) -> None:
        """Have no query that runs: see `RunningQuery.let_go`."""
        if self.running is None:
            return
        self.running.let_go()
        self.running = None
        streams.show(self.pipeline.name, state="stopped", reason="")
