"""Hosts the queries of one app for as long as they should run; one that fails does not stop the others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession
from sqlalchemy.exc import SQLAlchemyError

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline, Topic
from tally.control import incidents, leases, streams
from tally.host import driver_files, driver_log, lock
from tally.lake import memory
from tally.lake.session import jvm_pid, session
from tally.parts import Function
from tally.speed.shared.opening import begin_to_open
from tally.speed.shared.path import may_share
from tally.speed.shared.topic_stream import TopicStream
from tally.speed.start.ahead import Ahead
from tally.speed.stream_runner import StreamRunner
from tally.speed.upkeep.keeper import Keeper
from tally.speed.writer import Writer

log = logging.getLogger(__name__)
TURN_SECONDS = 1.0
BEAT_SECONDS = 2.0
# One turn of the loop may ask a silent Kafka about several topics, or wait for a query to stop: a minute. Three are no
# turn at all. A shorter limit would end a driver that is only slow.
LOOP_PATIENCE = 180.0
# What is held of a micro-batch is let go at once: to find how it is best packed takes a sixth of a large one's time.
READ_SOON = {"spark.sql.inMemoryColumnarStorage.compressed": "false"}


class Driver:
    """One app's queries in one Spark application, under one kernel lock."""

    def __init__(
        self, names: list[str], *, until_caught_up: bool = False, look: Callable[[], object] = lambda: None
    ) -> None:
        self.look = look  # beside the streams, at each turn; what it raises is said, and ends nothing
        known = catalogue()
        chosen = [known.pipeline(name) for name in names] or list(known.pipelines.values())
        self.broken = [] if names else list(known.broken.values())
        self.app = driver_files.APP if not names else "-".join([driver_files.APP, *sorted(names)])
        self.until_caught_up = until_caught_up
        self.takes_new = not names and not until_caught_up
        self.topics: dict[str, TopicStream] = {}
        self.runners = [StreamRunner(self, pipeline) for pipeline in chosen]
        self.spark: SparkSession | None = None
        self.keeper: Keeper | None = None
        self.ahead: Ahead | None = None
        self.owns_spark = False  # a session that was there before is neither stopped nor ended by the next driver
        self.stopping = False
        self.has_moved = False
        self.trouble = ""
        self.pulse = Pulse(self.beat, lambda: self.spark and self.spark.sparkContext._jvm)

    def run(self) -> list[TallyError]:
        """Host the queries until told to stop, or until all have caught up; what failed for good, or is broken."""
        driver_log.begin()
        for fault in self.broken:
            log.error("not run: %s", fault)
        with lock.hold(driver_files.lock_path(self.app)) as held, memory.told(memory.STREAM):
            me = psutil.Process()
            file = str(driver_files.log_path(self.app))
            streams.register_driver(self.app, settings().host_name, me.pid, me.create_time(), file)
            self.pulse.turned()
            self.pulse.start()
            leases.listen(self.lease_names())  # its JVM takes seconds to start
            self.owns_spark = SparkContext._active_spark_context is None
            self.spark = session(f"tally-stream-{self.app}", memory=settings().stream_memory, extra=READ_SOON)
            self.adopted_by(held)
            self.keeper = Keeper(self.spark)
            wanted = [one.pipeline for one in self.runners if one.is_wanted]
            if any(map(may_share, wanted)):
                begin_to_open(self.spark)
            self.ahead = Ahead(self.spark, wanted)
            try:
                self.host()
            finally:
                self.stop_all()
            for stream in self.topics.values():
                stream.journal.close()
            streams.driver_ended(self.app)
        return self.broken + [runner.failed for runner in self.runners if runner.failed]

    def host(self) -> None:
        while not self.stopping:
            for runner in self.runners:
                self.pulse.turned()  # before each: one that starts, or a Kafka that is silent, takes seconds
                self.require_jvm()
                self.tend(runner)
            self.tend_topics()
            self.outlive()
            self.look_beside()
            if self.until_caught_up and all(runner.done for runner in self.runners):
                return
            if self.runners and all(runner.stopped for runner in self.runners):
                log.info("every stream is stopped, and so is their driver; tally resume PIPELINE")
                return
            self.take_new()
            time.sleep(0.2 if self.until_caught_up else TURN_SECONDS)

    def tend(self, runner: StreamRunner) -> None:
        """One turn for one stream; a control store that takes nothing now (a full disk, a restart) is tried again."""
        try:
            runner.tend()
        except SQLAlchemyError as error:
            said = str(error).splitlines()[0]
            if said != self.trouble:
                log.warning("%s: the control store does not answer: %s", runner.pipeline.name, said)
            self.trouble = said

    def look_beside(self) -> None:
        try:
            self.look()
        except Exception as error:
            log.warning("cannot look whether numbers are sealed: %s", error)

    def function(self, pipeline: Pipeline) -> Function:
        """A pipeline's function, as it is looked at once for all that a start asks of it."""
        assert self.ahead is not None
        return self.ahead.of(pipeline)

    def topic_stream(self, topic: Topic) -> TopicStream:
        """The stream of a topic that pipelines share; a new one where there is none, or it is over."""
        assert self.keeper is not None
        self.let_go_of_topics()
        if topic.name not in self.topics:
            writer = Writer()
            writer.take(leases.name_of_inbox(topic.name), self.adopted_by)
            try:
                begun = TopicStream(self.keeper, topic, writer, until_caught_up=self.until_caught_up)
            except Exception:
                writer.release()
                raise
            self.topics[topic.name] = begun
        return self.topics[topic.name]

    def tend_topics(self) -> None:
        """One turn for the streams that pipelines share: once all of these have had theirs, they begin together."""
        for stream in self.topics.values():
            stream.tend()
        try:
            self.let_go_of_topics()
        except SQLAlchemyError as error:  # the next turn tries again
            log.warning("the control store does not answer: %s", str(error).splitlines()[0])

    def let_go_of_topics(self) -> None:
        """Leave the streams that are over to whoever begins the next one, here or in another driver."""
        for name, stream in list(self.topics.items()):
            if stream.over:
                stream.close()
                del self.topics[name]

    def lease_names(self) -> Iterator[str]:
        """The leases that it may take."""
        for runner in self.runners:
            yield leases.name_of(runner.pipeline)
            yield from (leases.name_of_inbox(topic.name) for topic in runner.pipeline.reads)

    def require_jvm(self) -> None:
        """A driver without its JVM hosts nothing: it ends, and says of what."""
        if gone := self.owns_spark and memory.behind(None, memory.STREAM):
            raise gone

    def take_new(self) -> None:
        """Host pipelines that were added to the catalogue since; a broken file is told of by `tally check`."""
        if not self.takes_new:
            return
        with suppress(TallyError, SQLAlchemyError):  # a store that does not answer now is asked at the next turn
            there = {runner.pipeline.name for runner in self.runners}
            added = [pipeline for name, pipeline in catalogue().pipelines.items() if name not in there]
            self.runners += [StreamRunner(self, pipeline) for pipeline in added]

    def beat(self) -> None:
        streams.heartbeat(self.app)
        for writer in [one.writer for one in self.runners] + [one.writer for one in list(self.topics.values())]:
            writer.beat()

    def outlive(self) -> None:
        """Once a stream made a commit and none is where earlier drivers died, their deaths are over.

        All of them: one stream's micro-batch may kill each driver, while the others go on in between.
        """
        if self.has_moved or not any(runner.moved for runner in self.runners):
            return
        if all(runner.moved or runner.waits() for runner in self.runners):
            self.has_moved = True
            streams.survived(self.app)
            incidents.close("", *incidents.DRIVER_FAULTS, done="a new driver's streams move")

    def stop_all(self) -> None:
        for runner in self.runners:
            runner.let_go()
        for stream in self.topics.values():
            stream.tend()
        if self.ahead is not None:
            self.ahead.close()
        if self.keeper is not None:
            self.keeper.close()
        for stream in self.topics.values():
            stream.close()
        for runner in self.runners:
            runner.writer.release()
        self.pulse.stop()
        if self.spark is not None and self.owns_spark:
            self.spark.stop()

    def adopted_by(self, held: lock.Lock) -> None:
        """Have the JVM that this driver started end before another holder of the lock goes on."""
        if self.spark is not None and self.owns_spark:
            held.adopt(jvm_pid(self.spark))


class Pulse:
    """A driver's sign of life: a thread that writes it every two seconds, and only while the driver really lives.

    It asks the JVM for the time before it writes, and falls silent when the driver's own loop has not `turned` for
    long: a stopped JVM or a loop that hangs is seen as silence, from outside, by whoever watches.
    """

    def __init__(self, write: Callable[[], None], jvm: Callable[[], Any]) -> None:
        self.write, self.jvm = write, jvm
        self.turned_at = time.monotonic()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, name="pulse", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def turned(self) -> None:
        self.turned_at = time.monotonic()

    def stop(self) -> None:
        self.over.set()
        self.thread.join(timeout=BEAT_SECONDS)

    def run(self) -> None:
        trouble = ""
        while not self.over.wait(BEAT_SECONDS):
            if time.monotonic() - self.turned_at > LOOP_PATIENCE:
                continue
            try:
                jvm = self.jvm()
                if jvm is not None:
                    jvm.java.lang.System.nanoTime()
                self.write()
                trouble = ""
            except SQLAlchemyError as error:  # a full disk, a database that restarts: the next beat may be written
                said = str(error).splitlines()[0]
                if said != trouble:
                    log.warning("tally: the control store takes no sign of life: %s", said)
                trouble = said
            except Exception as error:  # the JVM is gone: that is silence
                if str(error) != trouble:
                    log.warning("tally: no sign of life: %s", type(error).__name__)
                trouble = str(error)
