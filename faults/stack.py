"""A Tally of its own for one fault: a home, a broker, the campaign's catalogue, and a driver that is supervised.

Everything is started by `start` and gone after `close`, also when the campaign is interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from faults.network import Network
from tally.embedded import airflow
from tally.embedded.broker_files import free_port
from tally.host import driver_files

TALLY = str(Path(sys.executable).parent / "tally")
CATALOGUE = Path(__file__).parent / "catalogue"
SETTINGS = {
    "TALLY_KAFKA_HEAP": "256m",
    "TALLY_STREAM_MEMORY": "900m",
    "TALLY_SPARK_MEMORY": "900m",
    # No JVM of a campaign lives long enough for more.
    "TALLY_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    "TALLY_KAFKA_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    "TALLY_TRIGGER_SECONDS": "0.2",
    "TALLY_FOLD_AFTER_BATCHES": "5",
    "TALLY_IDLE": "20 seconds",
    "TALLY_TRIM_AFTER": "0 seconds",
}

# Five million events archived, restated and compared by two pipelines take a quarter of it on two busy cores.
SETTLE_SECONDS = 3600


class Stack:
    """One home, and the processes that belong to it."""

    def __init__(
        self,
        pipelines: Sequence[str],
        mounts: dict[str, int] | None = None,
        *,
        apart: bool = False,
        **settings: str,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tally-faults-"))
        self.home, self.arm_file = self.folder / "home", self.folder / "failpoint"
        self.pipelines = list(pipelines)
        catalogue = self.folder / "catalogue"
        (catalogue / "pipelines").mkdir(parents=True)
        shutil.copy(CATALOGUE / "topics.py", catalogue)
        for name in pipelines:
            shutil.copy(CATALOGUE / "pipelines" / f"{name}.py", catalogue / "pipelines")
        self.before = dict(os.environ)
        for name in self.before:
            if name.startswith("TALLY_") and name != "TALLY_JARS":
                del os.environ[name]
        places = {"TALLY_HOME": str(self.home), "TALLY_CATALOG": str(catalogue), "TALLY_KAFKA_PORT": str(free_port())}
        os.environ.update({**SETTINGS, **places, "TALLY_FAILPOINT": f"@{self.arm_file}", **settings})
        self.bootstrap = ""
        self.supervisor: subprocess.Popen[bytes] | None = None
        self.mounts: list[Path] = []
        self.wanted = dict(mounts or {})
        self.network = Network(self.folder) if apart else None

    def start(self, *, driver: bool = True) -> None:
        """A broker that answers, and a supervisor that starts the driver."""
        for setting, megabytes in self.wanted.items():
            where = self.mount(setting.removeprefix("TALLY_").lower(), megabytes)
            os.environ[setting] = f"sqlite:///{where}/control.db" if setting == "TALLY_CONTROL" else str(where)
        if self.network is not None:
            os.environ["TALLY_KAFKA"] = self.network.open()
        self.bootstrap = self.tally("up")["bootstrap"]
        if driver:
            self.supervise()

    def supervise(self, **more: str) -> None:
        """Start the supervisor; what it starts inherits the given environment."""
        command = [*(self.network.inside if self.network else []), sys.executable, "-m", "faults.supervise"]
        with (self.folder / "supervisor.log").open("ab") as log:
            self.supervisor = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **more})

    def stop_supervising(self) -> None:
        if self.supervisor is not None:
            self.supervisor.kill()
            self.supervisor.wait()
            self.supervisor = None

    def stop_driver(self) -> None:
        """The driver ends in order, and nobody starts it again."""
        from tally.supervise import launch

        self.stop_supervising()
        launch.stop()

    def tally(self, *words: str, check: bool = True, before: Sequence[str] | None = None) -> Any:
        """Run one verb with --json to its end, after the words of a command that runs commands; its document."""
        command = [*(before or []), TALLY, *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if check and done.returncode not in (0, 1):
            raise RuntimeError(
                f"tally {' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr[-2000:]}"
            )
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def settle(self, span: tuple[str, str], **more: str) -> tuple[int, dict[str, Any]]:
        """Archive, restate, compare and seal in a process of its own; its exit code, and what came of each pipeline."""
        done = subprocess.run(
            [sys.executable, "-m", "faults.settle", *span],
            capture_output=True, text=True, timeout=SETTLE_SECONDS, check=False, env={**os.environ, **more},
        )  # fmt: skip
        (self.folder / "settle.log").write_text(done.stderr)
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}

    def driver(self) -> psutil.Process | None:
        """The live driver's Python process."""
        from tally.host import lock

        return lock.holder(driver_files.lock_path())

    def jvm(self) -> psutil.Process | None:
        """The live driver's JVM, once there is one."""
        driver = self.driver()
        with suppress(psutil.Error):
            for child in driver.children(recursive=True) if driver else []:
                if child.name() == "java":
                    return child
        return None

    def arm(self, point: str) -> None:
        """Have the next process that passes a failpoint, `name` or `name:times`, die there, once."""
        draft = self.arm_file.with_suffix(".draft")
        draft.write_text(point)
        draft.replace(self.arm_file)

    def disarm(self) -> bool:
        """Take the order back; whether it was still there, so that nobody has died of it."""
        if not self.arm_file.exists():
            return False
        self.arm_file.unlink(missing_ok=True)
        return True

    def mount(self, name: str, megabytes: int) -> Path:
        """A small file system of its own in this run's folder; needs root."""
        where = self.folder / name
        where.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tally-faults", str(where)], check=True)
        self.mounts.append(where)
        return where

    def close(self) -> None:
        """End every process of this home, and leave nothing behind."""
        self.stop_supervising()
        driver, jvm = self.driver(), self.jvm()
        for process in (driver, jvm):
            with suppress(psutil.Error, AttributeError):
                process.kill()  # type: ignore[union-attr]
        with suppress(Exception):
            self.tally("down", check=False)
        if self.network is not None:
            self.network.close()
        for where in self.mounts:
            subprocess.run(["umount", "-l", str(where)], check=False)
        forget_stores()
        for name in os.environ.keys() - self.before.keys():
            del os.environ[name]
        os.environ.update(self.before)
        if os.environ.get("FAULTS_KEEP"):
            print(f"kept: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def forget_stores() -> None:
    """Close the engines that this process has on homes that go away."""
    from tally.control import store

    for engine in store.engines.values():
        engine.dispose()
    store.engines.clear()


@contextmanager
def running(stack: Stack, *, driver: bool = True) -> Iterator[Stack]:
    """The stack while it runs; SIGTERM ends it as Ctrl-C does."""
    earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        stack.start(driver=driver)
        yield stack
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave half of it
        try:
            stack.close()
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, earlier)


@contextmanager
def an_airflow() -> Iterator[airflow.Running]:
    """This home's Airflow while it runs, every part of it healthy."""
    try:
        yield airflow.start(wait=True)
    finally:
        airflow.stop()


def until(what: Any, seconds: float, pause: float = 0.1) -> bool:
    """Whether something came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(pause)
    return bool(what())
