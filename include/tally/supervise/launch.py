"""Starts and ends an app's stream driver: a plain Python process (spark/stream.py) in a session of its own.

So it outlives whoever started it. That there are never two of them is the kernel's word: the driver holds
<home>/run/stream-<app>.lock for its life.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tally.control import streams
from tally.embedded import process
from tally.errors import AnswerIsNo
from tally.settings import REPO, settings
from tally.supervise import lock

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


def start(app: str = APP, command: Sequence[str] | None = None) -> psutil.Process:
    """A new driver that holds its lock; AnswerIsNo with the log's last lines when it ends before."""
    process.stop(run_file(app))  # what is left of the last one's session
    log = log_path(app)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    begin = log.stat().st_size if log.exists() else 0
    streams.launching(app, settings().host_name, "local", str(log))
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(command or [sys.executable, str(REPO / "spark" / "stream.py")]),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=environment(),
        )  # fmt: skip
    driver = psutil.Process(child.pid)
    process.write_json(run_file(app), lock.identity(driver))
    streams.launched(app, driver.pid, driver.create_time())
    child.returncode = 0  # it outlives us: nobody waits for it, and Popen must not warn about that
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        held = lock.holder(lock_path(app))
        if held and held.pid == driver.pid:
            return driver
        if process.ended(driver):
            break
        time.sleep(0.1)
    what = "ended at once" if process.ended(driver) else f"did not take its lock in {START_PATIENCE:.0f} s"
    process.stop(run_file(app))
    raise AnswerIsNo(
        f"a new driver {what}. The last lines of {log}:\n{process.tail(log, since=begin)}",
        field=f"stream driver {app}",
        cure="mend what the log names; `tally stream` runs the same in the foreground",
    )


def stop(app: str = APP) -> bool:
    """End the app's driver and its JVM, however it was started; True when there was one."""
    _name_holder(app)
    return process.stop(run_file(app), patience=STOP_PATIENCE)


def kill(app: str = APP) -> bool:
    """kill -9 the app's driver, its JVM and all its session, and return when they are gone; True when there was one."""
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
        process.write_json(run_file(app), lock.identity(running))


def environment() -> dict[str, str]:
    """Ours without what belongs to the Airflow task that may have called; settings as this process sees them."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    run = settings()
    return {**ours, "TALLY_HOME": str(run.home), "TALLY_CATALOG": str(run.catalog), "TALLY_JARS": str(run.jars)}
