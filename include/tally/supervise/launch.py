"""Starts and ends an app's stream driver (spark/stream.py), here or in a cluster; it outlives whoever started it.

That there are never two of them on one machine is the kernel's word: the driver holds <home>/run/stream-<app>.lock for
its life. Over machines the lease of each table sees to it (control/leases.py).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import REPO, Settings, settings
from tally.control import streams
from tally.host import driver_files, lock, process
from tally.host.waiting import until
from tally.lake.session import spark_home
from tally.supervise import submit

START_PATIENCE = 60.0  # seconds for a started driver to take its lock: imports and catalogue, 3 s when idle
STOP_PATIENCE = 60.0  # seconds for a driver to end its micro-batches; a killed one replays them, which costs more
ANSWER_PATIENCE = 120.0  # seconds for spark-submit to hand a driver over, or to ask for one: a JVM and a few requests
LOG_LIMIT = 20_000_000  # bytes of a log before the next start puts it aside as <log>.1
DRIVER = (sys.executable, str(REPO / "spark" / "stream.py"))


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What runs a driver: a process of this machine, or a job that a cluster knows by its name."""

    pid: int = 0
    created: float = 0.0
    job: str = ""


def pipelines() -> list[str]:
    """The names of the catalogue's pipelines, by their files alone: a file is named like its function."""
    return sorted(file.stem for file in settings().catalog.glob("pipelines/[!_]*.py"))


def start(app: str = driver_files.APP, command: Sequence[str] | None = None) -> Launched:
    """A new driver: a local one holds its lock by then; AnswerIsNo with the log's last lines when it ends before."""
    log = driver_files.log_path(app)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    begin = log.stat().st_size if log.exists() else 0
    if not elsewhere():
        process.stop(driver_files.run_file(app))  # what is left of the last one's session
    streams.launching(app, settings().host_name, settings().launcher, str(log))
    if elsewhere():
        one = Launched(job=cluster(app).start(command or DRIVER, log))
    else:
        one = spawn(app, command or DRIVER, log)
    streams.launched(app, one.pid, one.created, one.job)
    if not elsewhere():
        await_lock(app, one, log, begin)
    return one


def spawn(app: str, command: Sequence[str], log: Path) -> Launched:
    """A process of this machine in a session of its own; what it prints is appended to the log.

    Its executors are in it, or on a standalone cluster: PySpark has no other way there.
    """
    run = settings()
    if run.launcher == "standalone" and not run.spark_master.startswith("spark://"):
        raise TallyError(
            f"{run.spark_master} is no standalone master",
            field="TALLY_SPARK_MASTER",
            cure="set it to spark://HOST:7077, or TALLY_LAUNCHER to local",
        )
    log.parent.mkdir(parents=True, exist_ok=True)
    begin = log.stat().st_size if log.exists() else 0
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            env=driver_files.environment(run),
        )  # fmt: skip
    driver = psutil.Process(child.pid)
    child.returncode = 0  # it outlives us: nobody waits for it, and Popen must not warn about that
    process.write_json(driver_files.run_file(app), {**process.identity(driver), "log_from": begin})
    return Launched(pid=driver.pid, created=driver.create_time())


def await_lock(app: str, one: Launched, log: Path, begin: int) -> None:
    """Return once a local driver holds its lock; AnswerIsNo with its last words when it ends before, or is slow."""
    driver = lock.live({"pid": one.pid, "created": one.created})

    found = ""

    def settled() -> str:
        nonlocal found
        held = lock.holder(driver_files.lock_path(app))
        if held is not None and held.pid == one.pid:
            found = "holds"
        elif driver is None or process.ended(driver):
            found = "ended at once"
        return found

    until(settled, seconds=START_PATIENCE, every=0.1)
    if found == "holds":
        return
    what = found or f"did not take its lock in {START_PATIENCE:.0f} s"
    process.stop(driver_files.run_file(app))
    raise AnswerIsNo(
        f"a new driver {what}. The last lines of {log}:\n{process.tail(log, since=begin)}",
        field=f"stream driver {app}",
        cure="mend what the log names; `tally stream` runs the same in the foreground",
    )


def elsewhere() -> bool:
    """Whether a cluster runs the drivers, where no lock and no pid of theirs can be seen from here."""
    return settings().launcher in ("kubernetes", "yarn")


def stop(app: str = driver_files.APP) -> bool:
    """End the app's driver and its JVM, however it was started; True when there was one."""
    _name_holder(app)
    return process.stop(driver_files.run_file(app), patience=STOP_PATIENCE)


def kill(app: str = driver_files.APP) -> bool:
    """kill -9 the app's driver, its JVM and all its session, and return when they are gone; True when there was one.

    What a cluster runs it is asked to end; the lease keeps another one from writing beside it until then.
    """
    if elsewhere():
        row = streams.driver(app) or {}
        return bool(row.get("job")) and cluster(app).stop(str(row["job"]))
    _name_holder(app)
    running = lock.holder(driver_files.lock_path(app))
    if running is not None:
        children = running.children(recursive=True)
        for victim in (running, *children):
            with suppress(psutil.Error):
                victim.kill()
    return process.stop(driver_files.run_file(app), patience=0.0) or running is not None


def _name_holder(app: str) -> None:
    """A driver that was started by hand is ended like one of ours."""
    running = lock.holder(driver_files.lock_path(app))
    if running and running.pid != process.read_json(driver_files.run_file(app)).get("pid"):
        process.write_json(driver_files.run_file(app), process.identity(running))


def cluster(app: str = driver_files.APP) -> Cluster:
    """The cluster of the settings, for the driver of an app."""
    run = settings()
    return Cluster(run, submit.Kubernetes(run, app) if run.launcher == "kubernetes" else submit.Yarn(run, app))


class Cluster:
    """What runs drivers elsewhere: they are handed over, asked for and ended by commands."""

    def __init__(self, run: Settings, kind: submit.Submission) -> None:
        self.run, self.kind = run, kind

    def start(self, command: Sequence[str], log: Path) -> str:
        """Hand a driver over, and return its job; what is said of that is appended to the log."""
        self.kind.require()
        if standing := self.kind.standing():
            self.clear(standing)
        code, words = output_of(self.kind.submit(command), self.run)
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
        return job

    def clear(self, earlier: str) -> None:
        """Remove what is left of a driver that is over, for it keeps its name; one that lives is left alone."""
        if self.lives(earlier):
            raise AnswerIsNo(
                f"{earlier} runs already", field=f"stream driver {self.kind.app}", cure="stop it first, or leave it"
            )
        output_of(self.kind.kill(earlier), self.run)  # most often there is nothing, and that is no failure

    def lives(self, job: str) -> bool:
        """Whether it still runs, or waits to; a TallyError where nobody answers: who cannot be asked is not dead."""
        code, words = output_of(self.kind.status(job), self.run)
        state = self.kind.state(code, words)
        if state is None:
            raise TallyError(
                f"{self.run.launcher} does not say how {job} is:\n{last(words)}",
                field="TALLY_SPARK_MASTER",
                cure="check the cluster's address and this user's rights",
            )
        return state

    def stop(self, job: str) -> bool:
        """End it; True when there was something to end."""
        lived = self.lives(job)
        code, words = output_of(self.kind.kill(job), self.run)
        if lived and code:
            raise TallyError(f"{job} was not ended:\n{last(words)}", field="TALLY_SPARK_MASTER", cure="end it by hand")
        return lived


def output_of(command: Sequence[str], run: Settings) -> tuple[int, str]:
    """Run a command to its end: its exit code, and all that it said; a TallyError when it is missing or hangs."""
    # Spark's client of Kubernetes tries ten times, ever later: minutes in which nobody looks at the streams.
    hurry = {"KUBERNETES_REQUEST_RETRY_BACKOFFLIMIT": "3"}
    env = {**hurry, **driver_files.environment(run), "SPARK_HOME": str(spark_home())}
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
