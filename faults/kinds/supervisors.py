"""Those who supervise race each other, die, or have no database: the stream goes on, and never twice."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from faults.run import Run
from faults.stack import an_airflow, until
from tally.base.settings import settings
from tally.embedded import airflow
from tally.host import driver_files, process

RACES = 100
ACT = """
import time
time.sleep(max(0, {at} - time.time()))
from tally.supervise.ensure_driver import ensure_driver
print(ensure_driver())
"""
PARTS = ("scheduler", "triggerer", "api", "dag-processor")
# The slow clock of the streams DAG comes every five minutes, and a driver then needs half a one.
CLOCK_SECONDS = 400.0
DATABASE_AWAY_SECONDS = 180.0
TASK = re.compile(r"airflow worker -- [0-9a-f]{8}-")  # so a running task's process calls itself, by the task's id
TASK_SECONDS = (0.0, 1.0, 2.5, 4.0)


def raced(run: Run) -> None:
    """A driver dies, and two supervisors see it at the same moment; again and again."""
    run.stack.stop_supervising()
    done = 0
    while done < RACES and run.left() > 60:
        driver = run.stack.driver()
        if driver is not None:
            driver.kill()
            driver.wait(10)
        race(run, done)
        done += 1
    since = time.monotonic()
    run.stack.supervise()
    run.heals("the last race", since)
    run.one_writer()
    run.result.notes.append(f"{done} races of two supervisors")


def race(run: Run, number: int) -> None:
    """Both are told to act at one moment; afterwards one driver lives, whatever they say."""
    forget_deaths()
    code = ACT.format(at=time.time() + 2.0)
    racers = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    for racer in racers:
        racer.wait(120)
    alive = drivers()
    if len(alive) != 1:
        run.broken("I4", f"race {number}: {len(alive)} drivers live")


def drivers() -> list[psutil.Process]:
    """Every stream driver of this home that lives, whether it holds the lock or not."""
    mine, home = [], str(settings().home)
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.cmdline()[-1:] and one.cmdline()[-1].endswith("spark/stream.py") and not process.ended(one):
                mine += [one] if one.environ().get("TALLY_HOME") == home else []
    return mine


def forget_deaths() -> None:
    """Drivers that are killed before their first micro-batch are started ever later; a race cannot wait for that."""
    from tally.control import streams

    streams.survived(driver_files.APP)


def airflow_dies(run: Run) -> None:
    """Each part of Airflow is killed, then its database taken away; the stream goes on, and is adopted afterwards."""
    run.stack.stop_supervising()
    with an_airflow():
        for part in PARTS:
            for victim in found(part):
                with suppress(psutil.Error):
                    victim.kill()
            goes_on(run, f"{part} killed")
        restarted(run)
        for seconds in TASK_SECONDS:
            killed(run, "driver and the task that starts it killed", CLOCK_SECONDS, "the watcher's next order",
                   and_then=partial(task_dies, run, seconds))  # fmt: skip
        for victim in found("triggerer"):
            victim.kill()
        killed(run, "driver and triggerer killed", CLOCK_SECONDS, "the clock of the streams DAG")
        restarted(run)
        with locked(settings().home / "airflow" / "airflow.db"):
            time.sleep(DATABASE_AWAY_SECONDS)
            goes_on(run, "Airflow's database locked for 3 minutes")
        killed(run, "driver killed after the database came back", CLOCK_SECONDS, "the watcher")


def goes_on(run: Run, what: str) -> None:
    """The same driver as before commits."""
    driver = run.stack.driver()
    if driver is None or not run.moves() or run.stack.driver() != driver:
        run.broken("I5", f"{what}: the stream did not go on")
    run.one_writer()


def restarted(run: Run) -> None:
    """Airflow as a whole stops and starts; the driver that runs is adopted."""
    driver = run.stack.driver()
    airflow.stop()
    airflow.start(wait=True)
    time.sleep(20)
    if run.stack.driver() != driver:
        run.broken("I5", "the driver was not adopted when Airflow came back")


def task_dies(run: Run, seconds: float) -> None:
    """The task that is to start a driver dies so long after it has begun: while it loads, or while it starts one."""
    if not until(tasks, CLOCK_SECONDS, 0.05):
        run.result.notes.append("no task came that could be killed")
    time.sleep(seconds)
    for victim in tasks():
        with suppress(psutil.Error):
            victim.kill()


def killed(run: Run, what: str, seconds: float, by: str, and_then: Callable[[], None] = lambda: None) -> None:
    """The driver dies, then perhaps something else; it is brought back by what is left of Airflow."""
    driver, since = run.stack.driver(), time.monotonic()
    if driver is None:
        run.broken("I5", f"{what}: there was no driver")
        return
    driver.kill()
    and_then()
    back = until(lambda: (now := run.stack.driver()) is not None and now.pid != driver.pid, seconds)
    if not back:
        run.broken("I5", f"{what}: no driver within {seconds:.0f} s")
        return
    run.heals(what, since, by=by)


def found(part: str) -> list[psutil.Process]:
    """The processes of one part of this home's Airflow."""
    return named(re.compile(f"airflow:? {re.escape(part)}"))


def tasks() -> list[psutil.Process]:
    """The processes in which tasks run now: not the executor's own, which wait for tasks under the same name."""
    return named(TASK)


def named(pattern: re.Pattern[str]) -> list[psutil.Process]:
    """The processes of this home's Airflow whose command line has a pattern in it."""
    mine = []
    for one in process.session_of(airflow.pidfile(settings())):
        with suppress(psutil.Error):
            if pattern.search(" ".join(one.cmdline())):
                mine.append(one)
    return mine


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """An SQLite database takes nothing meanwhile: no heartbeat, no state, no new run. Reads go on."""
    holder = sqlite3.connect(database, timeout=120, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        holder.execute("COMMIT")
        holder.close()
