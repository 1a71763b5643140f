"""An app's stream driver runs when it should: one call looks, starts one if none lives, and says what it saw and did.

The driver is a plain Python process (spark/stream.py) in a session of its own, so it outlives whoever started it. That
there are never two of them is the kernel's word: the driver holds <home>/run/stream-<app>.lock for its life.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tally.control import streams
from tally.control.store import now_ms
from tally.embedded import process
from tally.errors import AnswerIsNo
from tally.settings import REPO, settings
from tally.supervise import lock

APP = "tally"

# A driver says every few seconds that it lives. Two minutes of silence is no collection pause of a small heap and no
# slow disk; a shorter limit would restart a driver that is only slow, a longer one leaves a hung one in place.
SILENCE_MS = 120_000

START_PATIENCE = 60.0  # seconds for a started driver to take its lock: imports and catalogue, 3 s when idle
STOP_PATIENCE = 60.0  # seconds for a driver to end its micro-batches; a killed one replays them, which costs more
LOG_LIMIT = 20_000_000  # bytes of a log before the next start puts it aside as <log>.1


@dataclass(frozen=True, kw_only=True)
class Ensured:
    """What `ensure` saw and what it did about it."""

    app: str
    saw: str
    did: str
    pid: int | None
    log: str

    def __str__(self) -> str:
        return f"stream driver {self.app}: {self.saw}; {self.did}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def ensure(app: str = APP, command: Sequence[str] | None = None) -> Ensured:
    """Have a live driver for the app when any of its streams is wanted; doing so again changes nothing."""
    with lock.hold(settings().home / "run" / f"launch-{app}.lock", wait=START_PATIENCE):
        if lock.is_held(lock_path(app)):
            return _look_at(app, command)
        if not any(streams.wanted(name)["state"] == "running" for name in pipelines()):
            return Ensured(app=app, saw="no driver, and every stream is paused", did="nothing to do", pid=None, log="")
        saw = "no driver lives" if process.read_json(run_file(app)) else "no driver was ever started"
        return _start(app, saw, command)


def stop(app: str = APP) -> bool:
    """End the app's driver and its JVM, however it was started; True when there was one."""
    running = lock.holder(lock_path(app))
    if running and running.pid != process.read_json(run_file(app)).get("pid"):
        process.write_json(run_file(app), lock.identity(running))
    return process.stop(run_file(app), patience=STOP_PATIENCE)


def lock_path(app: str = APP) -> Path:
    """What the driver holds for its life."""
    return settings().home / "run" / f"stream-{app}.lock"


def run_file(app: str = APP) -> Path:
    """{"pid", "created"} of the driver, by which `tally down` ends it first."""
    return settings().home / "run" / f"stream-{app}.json"


def log_path(app: str = APP) -> Path:
    return settings().home / "logs" / f"stream-{app}.log"


def pipelines() -> list[str]:
    """The names of the catalogue's pipelines, by their files alone: a file is named like its function."""
    return sorted(file.stem for file in settings().catalog.glob("pipelines/[!_]*.py"))


def silence_ms(app: str = APP) -> int | None:
    """How long the driver has said nothing; None where none ever registered."""
    known = streams.driver(app)
    return None if known is None else now_ms() - int(known["heartbeat_at"])


def _look_at(app: str, command: Sequence[str] | None) -> Ensured:
    """The lock is held: leave a driver alone that speaks, replace one that hangs."""
    running, silent = lock.holder(lock_path(app)), silence_ms(app)
    pid = running.pid if running else None
    age_ms = (time.time() - running.create_time()) * 1000 if running else 0.0
    if silent is not None and silent > SILENCE_MS and age_ms > SILENCE_MS:
        saw = f"driver {pid} lives but has said nothing for {silent // 1000} s"
        stop(app)
        return _start(app, saw, command)
    spoke = "is starting" if silent is None or silent > age_ms else f"spoke {max(silent, 0) / 1000:.0f} s ago"
    return Ensured(app=app, saw=f"driver {pid} lives and {spoke}", did="nothing to do", pid=pid, log=str(log_path(app)))


def _start(app: str, saw: str, command: Sequence[str] | None) -> Ensured:
    """Start a driver and return once it holds its lock; AnswerIsNo with the log's last lines when it ends before."""
    process.stop(run_file(app))  # what is left of the last one's session
    log = log_path(app)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    begin = log.stat().st_size if log.exists() else 0
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(command or [sys.executable, str(REPO / "spark" / "stream.py")]),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, env=environment(),
        )  # fmt: skip
    driver = psutil.Process(child.pid)
    process.write_json(run_file(app), lock.identity(driver))
    child.returncode = 0  # it outlives us: nobody waits for it, and Popen must not warn about that
    deadline = time.monotonic() + START_PATIENCE
    while time.monotonic() < deadline:
        held = lock.holder(lock_path(app))
        if held and held.pid == driver.pid:
            return Ensured(
                app=app, saw=saw, did=f"started driver {driver.pid} (log {log})", pid=driver.pid, log=str(log)
            )
        if process.ended(driver):
            break
        time.sleep(0.1)
    what = "ended at once" if process.ended(driver) else f"did not take its lock in {START_PATIENCE:.0f} s"
    process.stop(run_file(app))
    raise AnswerIsNo(
        f"{saw}; a new driver {what}. The last lines of {log}:\n{process.tail(log, since=begin)}",
        field=f"stream driver {app}",
        cure="mend what the log names; `tally stream` runs the same in the foreground",
    )


def environment() -> dict[str, str]:
    """Ours without what belongs to the Airflow task that may have called; settings as this process sees them."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    run = settings()
    return {**ours, "TALLY_HOME": str(run.home), "TALLY_CATALOG": str(run.catalog), "TALLY_JARS": str(run.jars)}
