"""What starts a stream driver, and where: each launcher starts one, says whether it lives, and ends it.

A Launched is small enough for a row of the control store. A launcher only does; when to start one, and that there are
never two, is decided by whoever asks. A question that a
cluster does not answer is raised: a driver that cannot be asked is not dead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from tally.embedded import process
from tally.errors import AnswerIsNo, TallyError
from tally.settings import REPO, Settings, settings
from tally.supervise import lock, submit

STOP_PATIENCE = 60.0  # seconds for a driver to end its micro-batches; a killed one replays them, which costs more
ANSWER_PATIENCE = 120.0  # seconds for spark-submit to hand a driver over, or to ask for one: a JVM and a few requests
DRIVER = (sys.executable, str(REPO / "spark" / "stream.py"))


@dataclass(frozen=True, kw_only=True)
class Launched:
    """Where a driver runs: a process of a host, or a job that a cluster knows by its name."""

    pid: int = 0
    created: float = 0.0
    host: str = ""
    job: str = ""


class Launcher(Protocol):
    """Starts drivers in one kind of place."""

    def start(self, command: Sequence[str] = DRIVER, log: Path | None = None) -> Launched:
        """Start a driver; what it prints, or what is said of its submission, is appended to the log."""

    def lives(self, one: Launched) -> bool:
        """Whether it still runs, or waits to; a TallyError where nobody answers."""

    def stop(self, one: Launched) -> bool:
        """End it and all it started; True when there was something to end."""


def launcher(app: str = "tally") -> Launcher:
    """The launcher of the settings, for the driver of an app."""
    run = settings()
    if run.launcher == "kubernetes":
        return Cluster(run, submit.Kubernetes(run, app))
    if run.launcher == "yarn":
        return Cluster(run, submit.Yarn(run, app))
    return Standalone(run, app) if run.launcher == "standalone" else Local(run, app)


class Local:
    """A Python process of this machine in a session of its own, so that it outlives whoever started it."""

    def __init__(self, run: Settings, app: str) -> None:
        self.run, self.app = run, app

    def start(self, command: Sequence[str] = DRIVER, log: Path | None = None) -> Launched:
        log = log or self.run.home / "logs" / f"stream-{self.app}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as out:
            child = subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env=environment(self.run),
            )  # fmt: skip
        driver = psutil.Process(child.pid)
        child.returncode = 0  # it outlives us: nobody waits for it, and Popen must not warn about that
        one = Launched(pid=driver.pid, created=driver.create_time(), host=self.run.host_name)
        process.write_json(self.pidfile, {**process.identity(driver), "log_from": begin})
        return one

    def lives(self, one: Launched) -> bool:
        self.ours(one)
        return lock.live({"pid": one.pid, "created": one.created}) is not None

    def stop(self, one: Launched) -> bool:
        self.ours(one)
        if process.read_json(self.pidfile).get("pid") != one.pid:
            process.write_json(self.pidfile, {"pid": one.pid, "created": one.created})
        return process.stop(self.pidfile, patience=STOP_PATIENCE)

    @property
    def pidfile(self) -> Path:
        """{"pid", "created"} of the driver, by which `tally down` ends it first; "log_from" is where its log begins."""
        return self.run.home / "run" / f"stream-{self.app}.json"

    def ours(self, one: Launched) -> None:
        if one.host != self.run.host_name:
            raise TallyError(
                f"process {one.pid} runs on {one.host}, and this is {self.run.host_name}",
                field=f"stream driver {self.app}",
                cure=f"ask on {one.host}, or set TALLY_LAUNCHER to what started it",
            )


class Standalone(Local):
    """The driver here, its executors on a standalone cluster: PySpark has no other way there."""

    def start(self, command: Sequence[str] = DRIVER, log: Path | None = None) -> Launched:
        if not self.run.spark_master.startswith("spark://"):
            raise TallyError(
                f"{self.run.spark_master} is no standalone master",
                field="TALLY_SPARK_MASTER",
                cure="set it to spark://HOST:7077, or TALLY_LAUNCHER to local",
            )
        return super().start(command, log)


class Cluster:
    """A driver that the cluster itself runs: handed over, asked for and ended by commands."""

    def __init__(self, run: Settings, kind: submit.Submission) -> None:
        self.run, self.kind = run, kind

    def start(self, command: Sequence[str] = DRIVER, log: Path | None = None) -> Launched:
        log = log or self.run.home / "logs" / f"stream-{self.kind.app}.log"
        self.kind.require()
        if standing := self.kind.standing():
            self.clear(Launched(job=standing))
        code, words = said(self.kind.submit(command), self.run)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as out:
            out.write(words)
        job = self.kind.job(words)
        if code or not job:
            raise AnswerIsNo(
                f"{self.run.launcher} did not take the driver:\n{last(words)}",
                field=f"stream driver {self.kind.app}",
                cure=f"mend what it names; all of it is in {log}",
            )
        return Launched(job=job)

    def clear(self, earlier: Launched) -> None:
        """Remove what is left of a driver that is over, for it keeps its name; one that lives is left alone."""
        if self.lives(earlier):
            raise AnswerIsNo(
                f"{earlier.job} runs already", field=f"stream driver {self.kind.app}", cure="stop it first, or leave it"
            )
        said(self.kind.kill(earlier.job), self.run)  # most often there is nothing, and that is no failure

    def lives(self, one: Launched) -> bool:
        code, words = said(self.kind.status(one.job), self.run)
        state = self.kind.state(code, words)
        if state is None:
            raise TallyError(
                f"{self.run.launcher} does not say how {one.job} is:\n{last(words)}",
                field="TALLY_SPARK_MASTER",
                cure="check the cluster's address and this user's rights",
            )
        return state

    def stop(self, one: Launched) -> bool:
        lived = self.lives(one)
        code, words = said(self.kind.kill(one.job), self.run)
        if lived and code:
            raise TallyError(
                f"{one.job} was not ended:\n{last(words)}", field="TALLY_SPARK_MASTER", cure="end it by hand"
            )
        return lived


def environment(run: Settings) -> dict[str, str]:
    """Ours without what belongs to the Airflow task that may have called; settings as this process sees them."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    return {**ours, "TALLY_HOME": str(run.home), "TALLY_CATALOG": str(run.catalog), "TALLY_JARS": str(run.jars)}


def said(command: Sequence[str], run: Settings) -> tuple[int, str]:
    """Run a command to its end: its exit code, and all that it said; a TallyError when it is missing or hangs."""
    # Spark's client of Kubernetes tries ten times, ever later: minutes in which nobody looks at the streams.
    hurry = {"KUBERNETES_REQUEST_RETRY_BACKOFFLIMIT": "3"}
    env = {**hurry, **environment(run), "SPARK_HOME": str(submit.spark_home())}
    with suppress(FileNotFoundError):
        try:
            done = subprocess.run(
                list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                errors="replace", check=False, env=env, timeout=ANSWER_PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TallyError(
                f"{Path(command[0]).name} did not end in {ANSWER_PATIENCE:.0f} s",
                field="TALLY_SPARK_MASTER",
                cure="check the cluster's address",
            ) from None
        return done.returncode, done.stdout
    raise TallyError(f"there is no {command[0]}", field="TALLY_LAUNCHER", cure="install it, and put it on the PATH")


def last(words: str, lines: int = 6) -> str:
    """The last lines that say something, without a JVM's stack."""
    plain = [line for line in words.splitlines() if line.strip() and not re.match(r"\s+(at |\.\.\. )", line)]
    return "\n".join(plain[-lines:])
