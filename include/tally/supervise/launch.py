"""Starts and ends an app's stream driver (spark/stream.py), so that it outlives whoever started it.

That there are never two of them on one machine is the kernel's word: the driver holds <home>/run/stream-<app>.lock for
its life. Over machines the lease of each table sees to it (control/leases.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tally.control import streams
from tally.embedded import process
from tally.errors import AnswerIsNo
from tally.settings import settings
from tally.supervise import lock
from tally.supervise.launchers import DRIVER, Launched, launcher

APP = "tally"

START_PATIENCE = 60.0  # seconds for a started driver to take its lock: imports and catalogue, 3 s when idle
STOP_PATIENCE = 60.0  # seconds for a driver to end its micro-batches; a killed one replays them, which costs more
LOG_LIMIT = 20_000_000  # bytes of a log before the next start puts it aside as <log>.1


def lock_path(app: str = APP) -> Path:
    """What the driver holds for its life."""
    return settings().home / "run" / f"stream-{app}.lock"


def launch_lock_path(app: str = APP) -> Path:
    """What whoever starts or ends a driver holds while doing so."""
    return settings().home / "run" / f"launch-{app}.lock"


def run_file(app: str = APP) -> Path:
    """{"pid", "created"} of the driver, by which `tally down` ends it first."""
    return settings().home / "run" / f"stream-{app}.json"


def log_path(app: str = APP) -> Path:
    return settings().home / "logs" / f"stream-{app}.log"


def pipelines() -> list[str]:
    """The names of the catalogue's pipelines, by their files alone: a file is named like its function."""
    return sorted(file.stem for file in settings().catalog.glob("pipelines/[!_]*.py"))


def start(app: str = APP, command: Sequence[str] | None = None) -> Launched:
    """A new driver: a local one holds its lock by then; AnswerIsNo with the log's last lines when it ends before."""
    place = launcher(app)
    log = log_path(app)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    begin = log.stat().st_size if log.exists() else 0
    if not elsewhere():
        process.stop(run_file(app))  # what is left of the last one's session
    streams.launching(app, settings().host_name, settings().launcher, str(log))
    one = place.start(command or DRIVER, log)
    streams.launched(app, one.pid, one.created, one.job)
    if not elsewhere():
        await_lock(app, one, log, begin)
    return one


def await_lock(app: str, one: Launched, log: Path, begin: int) -> None:
    """Return once a local driver holds its lock; AnswerIsNo with its last words when it ends before, or is slow."""
    driver = lock.live({"pid": one.pid, "created": one.created})
    deadline = time.monotonic() + START_PATIENCE
    while driver is not None and time.monotonic() < deadline:
        held = lock.holder(lock_path(app))
        if held and held.pid == one.pid:
            return
        if process.ended(driver):
            driver = None
        time.sleep(0.1)
    process.stop(run_file(app))
    what = "ended at once" if driver is None else f"did not take its lock in {START_PATIENCE:.0f} s"
    raise AnswerIsNo(
        f"a new driver {what}. The last lines of {log}:\n{process.tail(log, since=begin)}",
        field=f"stream driver {app}",
        cure="mend what the log names; `tally stream` runs the same in the foreground",
    )


def elsewhere() -> bool:
    """Whether a cluster runs the drivers, where no lock and no pid of theirs can be seen from here."""
    return settings().launcher in ("kubernetes", "yarn")


def stop(app: str = APP) -> bool:
    """End the app's driver and its JVM, however it was started; True when there was one."""
    _name_holder(app)
    return process.stop(run_file(app), patience=STOP_PATIENCE)


def kill(app: str = APP) -> bool:
    """kill -9 the app's driver, its JVM and all its session, and return when they are gone; True when there was one.

    What a cluster runs it is asked to end; the lease keeps another one from writing beside it until then.
    """
    if elsewhere():
        row = streams.driver(app) or {}
        return bool(row.get("job")) and launcher(app).stop(Launched(job=str(row["job"])))
    _name_holder(app)
    running = lock.holder(lock_path(app))
    if running is not None:
        children = running.children(recursive=True)
        for victim in (running, *children):
            with suppress(psutil.Error):
                victim.kill()
    return process.stop(run_file(app), patience=0.0) or running is not None


def _name_holder(app: str) -> None:
    """A driver that was started by hand is ended like one of ours."""
    running = lock.holder(lock_path(app))
    if running and running.pid != process.read_json(run_file(app)).get("pid"):
        process.write_json(run_file(app), process.identity(running))
