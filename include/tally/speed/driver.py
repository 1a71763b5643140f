"""Hosts the queries of one app for as long as they should run; one that fails does not stop the others."""

from __future__ import annotations

import random
import socket
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psutil
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tally.catalog.duration import iso
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import incidents, ledger, streams
from tally.control.store import now_ms
from tally.engine import jvm_pid, session
from tally.errors import AnswerIsNo, DataLost, TallyError
from tally.settings import settings
from tally.sources import kafka
from tally.sources.frames import observation
from tally.speed import query as queries
from tally.speed import state
from tally.speed.keeper import Keeper
from tally.supervise import launch, lock

BEAT_SECONDS = 2.0
# A topic's identity costs one request; a recreated topic is told within so many seconds.
IDENTITY_SECONDS = 15.0
# Who stops a stream waits so long for each running micro-batch; the launcher kills it later than that.
LAST_BATCH_SECONDS = 5.0
FIRST_BACKOFF, MOST_BACKOFF = 2.0, 60.0


@dataclass
class Hosted:
    """One pipeline in this driver: its running query, or when to try again."""

    pipeline: Pipeline
    query: StreamingQuery | None = None
    held: lock.Lock | None = None
    failures: int = 0
    retry_at: float = 0.0
    failed: TallyError | None = None
    gave_up: bool = False
    done: bool = False
    told_batch: int = -1
    checked_at: float = field(default_factory=time.monotonic)


class Driver:
    """One app's queries in one Spark application, under one kernel lock."""

    def __init__(self, names: list[str], *, until_caught_up: bool = False) -> None:
        known = catalogue()
        chosen = [known.pipeline(name) for name in names] or list(known.pipelines.values())
        self.broken = [] if names else list(known.broken.values())
        self.app = launch.APP if not names else "-".join([launch.APP, *sorted(names)])
        self.until_caught_up = until_caught_up
        self.hosted = [Hosted(pipeline) for pipeline in chosen]
        self.spark: SparkSession | None = None
        self.keeper: Keeper | None = None
        self.owns_spark = False  # a session that was there before is neither stopped nor ended by the next driver
        self.stopping = False
        self.beaten_at = -BEAT_SECONDS

    def run(self) -> list[TallyError]:
        """Host the queries until told to stop, or until all have caught up; what failed for good, or is broken."""
        for fault in self.broken:
            print(f"not run: {fault}", flush=True)
        with lock.hold(launch.lock_path(self.app)) as held:
            me = psutil.Process()
            log = str(launch.log_path(self.app))
            streams.register_driver(self.app, socket.gethostname(), me.pid, me.create_time(), log)
            self.owns_spark = SparkSession.getActiveSession() is None
            self.spark = session(f"tally-stream-{self.app}", memory=settings().stream_memory)
            self.adopted_by(held)
            self.keeper = Keeper(self.spark)
            try:
                self.host()
            finally:
                self.stop_all()
        return self.broken + [hosted.failed for hosted in self.hosted if hosted.failed]

    def host(self) -> None:
        while not self.stopping:
            for hosted in self.hosted:
                self.beat()  # before each: one that starts, or a Kafka that is silent, takes seconds
                self.tend(hosted)
            if self.until_caught_up and all(hosted.done for hosted in self.hosted):
                return
            time.sleep(0.2 if self.until_caught_up else BEAT_SECONDS)

    def beat(self) -> None:
        if time.monotonic() - self.beaten_at >= BEAT_SECONDS / 2:
            self.beaten_at = time.monotonic()
            streams.heartbeat(self.app)

    def tend(self, hosted: Hosted) -> None:
        """Bring one query nearer to its desired state."""
        name = hosted.pipeline.name
        wanted = streams.wanted(name)["state"] == "running"
        hosted.gave_up = hosted.gave_up and wanted  # who pauses and resumes has seen to what was lost
        if hosted.done or hosted.gave_up:
            return
        if hosted.query is None:
            if wanted and time.monotonic() >= hosted.retry_at:
                self.begin(hosted)
            elif not wanted:
                streams.show(name, state="paused", app=self.app)
                hosted.done = self.until_caught_up
            return
        if not hosted.query.isActive:
            self.ended(hosted)
            return
        self.tell(hosted)
        if not wanted:
            self.let_go(hosted)
        elif time.monotonic() - hosted.checked_at > IDENTITY_SECONDS:
            hosted.checked_at = time.monotonic()
            self.check_identity(hosted)

    def begin(self, hosted: Hosted) -> None:
        pipeline = hosted.pipeline
        if hosted.held is None and not self.take(hosted):
            return
        try:
            streams.show(pipeline.name, state="starting", reason="", version=pipeline.version, app=self.app)
            assert self.keeper is not None
            hosted.query = queries.start(
                self.keeper, pipeline, lambda done: self.applied(hosted, done), until_caught_up=self.until_caught_up
            )
        except Exception as error:
            self.failed(hosted, as_refusal(error, pipeline))

    def take(self, hosted: Hosted) -> bool:
        """Become the one writer of the stream's table; whoever is it already keeps it, and its row in the store."""
        pipeline = hosted.pipeline
        try:
            hosted.held = lock.hold(lock.table_path("speed", pipeline.name, pipeline.version))
        except TallyError as error:
            print(told(error, pipeline), flush=True)
            hosted.retry_at = time.monotonic() + MOST_BACKOFF
            if self.until_caught_up:
                hosted.done, hosted.failed = True, error
            return False
        self.adopted_by(hosted.held)
        return True

    def applied(self, hosted: Hosted, done: ledger.MicroBatch) -> None:
        """After each commit: the stream's row in the control store, and a clean slate for the backoff."""
        hosted.failures = 0
        pipeline = hosted.pipeline
        streams.show(
            pipeline.name,
            version=pipeline.version,
            generation=done.generation,
            app=self.app,
            state="running",
            reason="",
            batch=done.batch,
            watermark=done.watermark,
            progressed_at=now_ms(),
        )
        streams.heartbeat(self.app)
        incidents.close(pipeline.name, "stream failed", "data lost")

    def tell(self, hosted: Hosted) -> None:
        """What the newest micro-batch's progress says: how fresh it made the windows, and how fast it ran."""
        assert hosted.query is not None
        progress = hosted.query.lastProgress
        if not progress or progress["batchId"] == hosted.told_batch or not progress["numInputRows"]:
            return
        hosted.told_batch = progress["batchId"]
        streams.show(hosted.pipeline.name, **freshness(hosted.pipeline, progress))

    def ended(self, hosted: Hosted) -> None:
        """A query that is over: caught up, or failed with a cause worth saying."""
        assert hosted.query is not None
        error: Exception | None = hosted.query.exception()
        hosted.query = None
        if error is None:
            error = self.tidied(hosted.pipeline)
        if error is None:
            hosted.done = True
            streams.show(hosted.pipeline.name, state="stopped", reason="caught up")
        else:
            self.failed(hosted, diagnosed(error, hosted.pipeline))

    def tidied(self, pipeline: Pipeline) -> Exception | None:
        """What the last fold of a stream raised, once it is over."""
        assert self.keeper is not None
        try:
            self.keeper.finish(pipeline)
        except Exception as error:
            return error
        return None

    def failed(self, hosted: Hosted, error: TallyError) -> None:
        """Say what went wrong and try again later; lost data and --until-caught-up are not tried again."""
        hosted.failures += 1
        lost = isinstance(error, DataLost)
        wait = min(MOST_BACKOFF, FIRST_BACKOFF * 2 ** (hosted.failures - 1)) * random.uniform(0.8, 1.2)
        hosted.retry_at = time.monotonic() + wait
        hosted.gave_up = lost
        if self.until_caught_up:
            hosted.done, hosted.failed = True, error
        elif lost:
            hosted.failed = error
        reason = str(error).split("\n")[0]
        streams.show(hosted.pipeline.name, state="data_lost" if lost else "failed", reason=reason, app=self.app)
        incidents.report(hosted.pipeline.name, "data lost" if lost else "stream failed", reason, cure=error.cure or "")
        after = "it stays stopped" if lost or self.until_caught_up else f"next try in {wait:.0f} s"
        print(f"{told(error, hosted.pipeline)}\n  {after}", flush=True)

    def check_identity(self, hosted: Hosted) -> None:
        try:
            for topic in hosted.pipeline.reads:
                kafka.check_identity(topic.name, kafka.HURRY)
        except DataLost as error:
            assert hosted.query is not None
            hosted.query.stop()
            hosted.query = None
            self.failed(hosted, error)
        except TallyError:
            pass  # Kafka does not answer: the query itself waits for it

    def let_go(self, hosted: Hosted) -> None:
        """Stop a query, between two micro-batches where one ends in time; else what was planned is replayed."""
        if hosted.query is not None:
            deadline = time.monotonic() + LAST_BATCH_SECONDS
            with suppress(Exception):
                while hosted.query.isActive and hosted.query.status["isTriggerActive"]:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.02)
                hosted.query.stop()
            hosted.query = None
            streams.show(hosted.pipeline.name, state="stopped", reason="")

    def stop_all(self) -> None:
        for hosted in self.hosted:
            self.let_go(hosted)
        if self.keeper is not None:
            self.keeper.close()
        for hosted in self.hosted:
            if hosted.held:
                hosted.held.release()
        if self.spark is not None and self.owns_spark:
            self.spark.stop()

    def adopted_by(self, held: lock.Lock) -> None:
        """Have the JVM that this driver started end before another holder of the lock goes on."""
        if self.spark is not None and self.owns_spark:
            held.adopt(jvm_pid(self.spark))


def freshness(pipeline: Pipeline, progress: Any) -> dict[str, Any]:
    """Seconds from a micro-batch's newest record reaching the broker to its commit, its newest window, and its pace."""
    began = datetime.fromisoformat(str(progress["timestamp"]).replace("Z", "+00:00")).timestamp() * 1000
    ended = began + progress["durationMs"].get("triggerExecution", 0)
    found = progress["observedMetrics"]
    topics = [found[observation(topic)] for topic in pipeline.reads if observation(topic) in found]
    records = [row["newest_record"] for row in topics if row["newest_record"] is not None]
    told: dict[str, Any] = {"rows_per_second": float(progress.get("processedRowsPerSecond") or 0.0)}
    if records:
        told["freshness"] = max(0.0, (ended - max(records)) / 1000)
    if topics and topics[0]["newest_event"] is not None:
        told["newest_window"] = pipeline.slot(topics[0]["newest_event"])
    return told


def told(error: TallyError, pipeline: Pipeline) -> str:
    """An error with the pipeline's name before it, once."""
    return str(error) if error.pipeline == pipeline.name else f"{pipeline.name}: {error}"


def diagnosed(error: BaseException, pipeline: Pipeline) -> TallyError:
    """The cause behind a failed query: lost data with its range where that is it."""
    from tally.speed import checkpoint

    root = checkpoint.root(pipeline.name, pipeline.version, checkpoint.generation(pipeline.name, pipeline.version))
    try:
        queries.check_sources(pipeline, root)
    except TallyError as cause:
        return cause
    return as_refusal(error, pipeline)


def as_refusal(error: BaseException, pipeline: Pipeline) -> TallyError:
    """An error of Spark's as one line that a person can act on; the newest one stands whole in a file of its own."""
    if isinstance(error, TallyError):
        return error
    whole = settings().home / "logs" / f"stream-{pipeline.name}-error.log"
    whole.parent.mkdir(parents=True, exist_ok=True)
    whole.write_text(f"{iso(datetime.now(UTC))} {''.join(traceback.format_exception(error))}")
    if refusal := state.refusal(error, pipeline):
        return refusal
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("[")), lines[0] if lines else type(error).__name__)
    return AnswerIsNo(
        told[:500], pipeline=pipeline.name, cure=f"all of it is in {whole}; the stream goes on where it stopped"
    )
