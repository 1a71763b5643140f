"""A demo is up as a whole or not at all: it starts Kafka, topics, a producer and Airflow, and stops all of them.

Each part has a pid file in its home: `tally down` ends what a killed demo left, and the next demo goes on there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil

from tally.base.duration import parse_instant
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import settings
from tally.demo.parts import Part, starting
from tally.demo.screen import Screen
from tally.demo.watch import Watch
from tally.embedded import airflow, broker, login
from tally.host import driver_files, lock, process
from tally.host.waiting import until
from tally.supervise import launch

REFRESH = 1.0
LOOK_EVERY = 2.0  # seconds between looks at the lake and the broker; each costs a tenth of a second of a core
MICRO_BATCH = "50000"  # records; the past comes at once, and smaller batches show the first window sooner
PACE = "5"  # seconds between micro-batches; at 1 the four streams alone take most of a core from the batch
JAVA = "-XX:TieredStopAtLevel=1"  # a demo's JVMs live for minutes: the second compiler costs them more than it gives
BATCH_EVERY = "*/5 * * * *"  # a demo's viewer has minutes, not the hours that the default leaves between batches
# Seconds for the streams DAG to have a driver running: one run of the scheduler, imports, and a JVM on two busy cores.
DRIVER_PATIENCE = 240.0
PRODUCER_PATIENCE = 20.0  # a producer that is told to stop first delivers what it has sent
PRESENT = timedelta(minutes=2)  # a window that began this lately is live, not of the producer's past
# Seconds for the watch's last look: an interpreter that ends beneath a thread which loads a library may crash.
LAST_LOOK = 60.0
ROUNDS = 3  # of stopping; the second finds what was just being started, the third has nothing to do


@dataclass(frozen=True, kw_only=True)
class Show:
    """What to show: rides a second, how far back to begin, and for how many seconds (None: until told to stop)."""

    rate: float = 50.0
    past: str = "2 hours"
    seconds: float | None = None


class Demo:
    """One demo of one TALLY_HOME."""

    def __init__(self, show: Show, say: Callable[[str], None], *, live: bool) -> None:
        os.environ.setdefault("TALLY_BATCH_EVERY", BATCH_EVERY)
        os.environ.setdefault("TALLY_ARCHIVE_EVERY", BATCH_EVERY)
        os.environ.setdefault("TALLY_MAX_OFFSETS_PER_TRIGGER", MICRO_BATCH)
        os.environ.setdefault("TALLY_TRIGGER_SECONDS", PACE)
        os.environ.setdefault("TALLY_JAVA_OPTIONS", JAVA)
        run = settings()
        for name in ("home", "catalog", "jars"):  # the parts run in other folders, and must mean the same
            os.environ[f"TALLY_{name.upper()}"] = str(getattr(run, name))
        self.show, self.home, self.live = show, run.home, live
        self.kafka, self.topics = Part("Kafka"), Part("topics")
        self.producer, self.airflow, self.driver = Part("producer"), Part("Airflow"), Part("stream driver")
        self.parts = [self.kafka, self.topics, self.producer, self.airflow, self.driver]
        self.screen = Screen(self.parts, say, live=live)
        self.watch = Watch(self.parts)
        self.say, self.stopping, self.failed = say, threading.Event(), list[BaseException]()
        self.began, self.reached = time.monotonic(), dict[str, float]()

    def run(self) -> dict[str, Any]:
        """Bring everything up, show it until told to stop, take everything down; what was seen last."""
        with lock.hold(self.home / "run" / "demo.lock"), told_to_stop(self.stopping):
            process.write_json(self.home / "run" / "demo.json", process.identity(psutil.Process()))
            worker = threading.Thread(target=self.bring_up, name="bring-up", daemon=True)
            watcher = threading.Thread(target=self.keep_watch, name="watch", daemon=True)
            try:
                worker.start()
                watcher.start()
                while not self.stopping.wait(REFRESH):
                    self.screen.draw(self.watch.seen)
                    if self.show.seconds is not None and time.monotonic() - self.began > self.show.seconds:
                        break
            finally:
                self.stopping.set()
                self.take_down(worker)
                watcher.join(timeout=LAST_LOOK)
        if self.failed:
            raise self.failed[0]
        return {
            "seconds": round(time.monotonic() - self.began, 1),
            "reached": {what: round(seconds, 1) for what, seconds in self.reached.items()},
            "links": self.screen.links,
            "parts": {part.name: None if part.took is None else round(part.took, 1) for part in self.parts},
            "topics": self.watch.seen.topics,
            "memory": self.watch.seen.memory,
            "pipelines": self.watch.seen.pipelines,
        }

    def bring_up(self) -> None:
        """Start part after part; a failure ends the demo, unless it is already ending."""
        try:
            for step in (self.start_kafka, self.start_producer, self.start_airflow, self.await_driver):
                if self.stopping.is_set():
                    return
                step()
        except BaseException as error:
            if not self.stopping.is_set():
                self.failed.append(error)
                self.stopping.set()

    def start_kafka(self) -> None:
        with starting(self.kafka):
            state = broker.up()
            self.kafka.note = state.note or f"at {state.bootstrap}{'' if state.started else ', was running'}"
            if state.pid is not None:
                self.kafka.lives = lambda: process.find(broker.pidfile(settings())) is not None
        with starting(self.topics):
            self.topics.note = ", ".join(state.topics)

    def start_producer(self) -> None:
        """Two hours of the past as fast as the broker takes it, then live; after a stop it goes on where that was."""
        pidfile, log = self.home / "run" / "producer.json", self.home / "logs" / "producer.log"
        with starting(self.producer):
            if process.find(pidfile) is None:
                command = [str(Path(sys.executable).parent / "tally"), "produce", "rides"]
                process.start([*command, "--past", self.show.past, "--rate", f"{self.show.rate:g}"], log, pidfile)
            time.sleep(REFRESH)
            if process.find(pidfile) is None:
                raise AnswerIsNo(f"the producer ended at once; the last lines of {log}:\n{process.tail(log)}")
            self.producer.note = f"{self.show.rate:g} rides a second, from {self.show.past} ago"
            self.producer.lives = lambda: process.find(pidfile) is not None

    def start_airflow(self) -> None:
        with starting(self.airflow):
            found = airflow.start(wait=False)
            self.airflow.note = "; ".join(filter(None, [self.how_to_log_in(), found.note]))
            self.screen.links["Airflow UI"] = found.url
            airflow.start(wait=True)
            self.airflow.lives = lambda: process.find(airflow.pidfile(settings())) is not None

    def how_to_log_in(self) -> str:
        """A person at a terminal sees the password; a log, which others may read, only where it is."""
        run = settings()
        where = login.password(run) if self.live else f"is in {login.password_file(run)}"
        return f"log in as {login.ADMIN}, password {where}"

    def await_driver(self) -> None:
        """The streams DAG starts it, not we: that is what it is there for."""
        with starting(self.driver):

            def lives() -> bool:
                return lock.is_held(driver_files.lock_path())

            if not until(
                lambda: self.stopping.is_set() or lives(),
                seconds=DRIVER_PATIENCE, every=REFRESH, sleep=self.stopping.wait,
            ):  # fmt: skip
                raise AnswerIsNo(
                    f"no stream driver after {DRIVER_PATIENCE:.0f} s",
                    cure=f"look at the streams DAG in the UI, at {driver_files.log_path()} and at "
                    f"{airflow.log_path(settings())}",
                )
            if lives():
                self.driver.lives = lives
            else:
                self.driver.state = "stopped"

    def keep_watch(self) -> None:
        while not self.stopping.is_set():
            try:
                self.watch.renew()
                self.note_firsts()
            except Exception as error:  # a screen that cannot look now looks again; it must not end the demo
                self.watch.seen.trouble = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.stopping.wait(LOOK_EVERY)

    def note_firsts(self) -> None:
        """When windows of the present, and when sealed ones, were first there."""
        rows, present = self.watch.seen.pipelines, datetime.now(UTC) - PRESENT
        newest = [parse_instant(row["newest_window"]) for row in rows if row["newest_window"]]
        for what, there in (
            ("first live window", any(window > present for window in newest)),
            ("first sealed windows", any(row["sealed"] for row in rows)),
        ):
            if there and what not in self.reached:
                self.reached[what] = time.monotonic() - self.began
        told = (f"{what} after {seconds:.0f} s" for what, seconds in self.reached.items())
        self.screen.reached = ", ".join(told)

    def take_down(self, worker: threading.Thread) -> None:
        """Stop part after part until nothing is left; Ctrl-C cannot cut it short."""
        with suppress(OSError, ValueError):
            self.screen.draw(self.watch.seen)
            self.screen.close()
            self.say("stopping…")
        (self.home / "run" / "demo.json").unlink(missing_ok=True)  # or `down` would end us before we are done
        stopped: list[str] = []
        for _ in range(ROUNDS):
            round_ = stop_all()
            stopped += [name for name in round_ if name not in stopped]
            worker.join(timeout=30.0)
            if not round_ and not worker.is_alive():
                break
        for part in self.parts:
            part.state = "stopped" if part.state in ("up", "starting") else part.state
        with suppress(OSError, ValueError):
            self.say(f"stopped: {', '.join(stopped) or 'nothing was running'}; the data is in {self.home}")


def stop_all() -> list[str]:
    """What fills first, then what would start drivers, then the drivers, then what they read; what was stopped."""
    run = settings()
    stopped = []
    stops: dict[str, Callable[[], bool]] = {
        "producer": lambda: process.stop(run.home / "run" / "producer.json", patience=PRODUCER_PATIENCE),
        "Airflow": airflow.stop,
        "stream driver": launch.stop,
        "Kafka": lambda: process.stop(broker.pidfile(run)),
    }
    for name, stop in stops.items():
        with suppress(TallyError):
            if stop():
                stopped.append(name)
    return stopped + broker.down()


@contextmanager
def told_to_stop(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C, SIGTERM and a closed terminal set the event, once and again, and do nothing else."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    earlier = {number: signal.signal(number, lambda *_: stopping.set()) for number in signals}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
