"""kill -9 of the stream driver: at each named step, at each file that Spark writes, and at any moment."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from faults.producer import HOUR, TOPICS
from faults.run import Run, quiet
from faults.stack import Stack, until
from faults.truth import MINUTE
from tally.base.settings import settings

# Steps of the driver in Python, in the order in which a micro-batch passes them; then those beside the micro-batches.
POINTS = (
    "speed.begin",
    "speed.before_commit",
    "speed.after_commit",
    "speed.after_ledger",
    "speed.end",
    "speed.before_fold",
    "speed.after_fold",
    "speed.before_shorten",
    "speed.after_shorten",
)
# Run while a driver starts: ordered before it is killed.
STARTS = ("speed.before_table", "speed.before_repair", "speed.after_repair")
# Steps of a trim, in the order in which it passes them: each of these kills but the last leaves it to be done again.
TRIMS = ("speed.before_keeping", "speed.after_keeping", "speed.before_trim", "speed.after_trim")
# Steps of a stream that pipelines share: around the inbox, and between two of their tables.
SHARED = (
    "shared.begin",
    "shared.before_taken",
    "shared.after_taken",
    "speed.before_commit",
    "speed.after_commit",
    "speed.after_ledger",
    "shared.after_member",
    "shared.end",
    "shared.before_inbox_fold",
    "shared.after_inbox_fold",
    "speed.before_fold",
    "speed.after_fold",
)
# Files that Spark and Delta write by themselves: the driver is killed as soon as a new one is seen.
FILES = {
    "write-ahead log": ("checkpoints", "*/*/g*/offsets/*"),
    "commit log": ("checkpoints", "*/*/g*/commits/*"),
    "state": ("checkpoints", "*/*/g*/state/*/*/*"),
    "table's data": ("lake", "speed/*/*/_date=*/*.parquet"),
    "table's log": ("lake", "speed/*/*/_delta_log/*"),
}
SEEN_SECONDS = 25.0


def at_failpoints(run: Run) -> None:
    """Each step in turn, while time is left; the order is the seed's."""
    for point in endless([*POINTS, *STARTS], run.rng):
        if run.left() < 40:
            return
        at_point(run, point)
        run.one_writer()


def at_point(run: Run, point: str, times: int = 0) -> None:
    """Let the driver die at one step, and see it well again; a step that is not reached in time is no kill."""
    victim = run.stack.driver()
    if victim is None:
        run.broken("I5", f"no driver lives before {point}")
        return
    if point in STARTS:
        run.stack.arm(point)
        kill_all(run.stack)
    else:
        run.stack.arm(f"{point}:{times or run.rng.randrange(1, 5)}")
    reached = until(lambda: not run.stack.arm_file.exists(), SEEN_SECONDS, 0.02)
    since = time.monotonic()
    if reached:
        run.heals(point, since)
    elif run.stack.disarm():
        run.result.notes.append(f"{point} was not reached in {SEEN_SECONDS:.0f} s")


def of_shared(run: Run) -> None:
    """Each step of a shared stream in turn, and any moment between two of them."""
    for number, point in enumerate(endless(list(SHARED), run.rng)):
        if run.left() < 40:
            return
        at_point(run, point, times=1 if "fold" in point else 0)
        if number % 3 == 0:
            at_moment(run, run.rng.choice(list(WAYS)))
        run.one_writer()


def at_trims(run: Run) -> None:
    """Seal what there is, and let the driver die as it trims the day that is sealed; then events for that day come."""
    run.stack.settle(run.span())
    run.stack.arm(TRIMS[0])
    for point, following in zip(TRIMS, (*TRIMS[1:], ""), strict=True):
        if until(lambda: not run.stack.arm_file.exists(), SEEN_SECONDS, 0.02):
            since = time.monotonic()
            if following:
                run.stack.arm(following)  # at once: the next driver's first look at old days is the one
            run.heals(point, since)
        else:
            run.stack.disarm()
            run.result.notes.append(f"{point} was not reached in {SEEN_SECONDS:.0f} s")
            break
        run.one_writer()
    for _ in range(20):
        with run.sender.guard:
            body = run.sender.made(run.sender.start_ms - 26 * HOUR + run.rng.randrange(5) * MINUTE)
            run.sender.event(run.rng.choice(TOPICS), 0, body, kind="hours late")


def at_files(run: Run) -> None:
    """Python and JVM die together as a file of Spark's or Delta's appears."""
    for name in endless(list(FILES), run.rng):
        if run.left() < 40:
            return
        at_file(run, name)
        run.one_writer()


def at_file(run: Run, name: str) -> None:
    if appeared(*FILES[name], lambda: kill_all(run.stack)):
        run.heals(f"file: {name}", time.monotonic())


def at_any_moment(run: Run) -> None:
    """Python, its JVM or both, whenever."""
    for name in endless(list(WAYS), run.rng):
        if run.left() < 40:
            return
        at_moment(run, name)
        run.one_writer()


def at_moment(run: Run, name: str) -> None:
    time.sleep(run.rng.uniform(0.2, 3.0))
    WAYS[name](run.stack)
    run.heals(f"any moment: {name}", time.monotonic())


def under_load(run: Run) -> None:
    """Every way to die, again and again, while thousands of records a second come."""
    steps: dict[str, Callable[[], None]] = {point: partial(at_point, run, point) for point in (*POINTS, *STARTS)}
    files: dict[str, Callable[[], None]] = {name: partial(at_file, run, name) for name in FILES}
    moments: dict[str, Callable[[], None]] = {name: partial(at_moment, run, name) for name in WAYS}
    ways = steps | files | moments
    for number, name in enumerate(endless(list(ways), run.rng)):
        if run.left() < 40:
            return
        ways[name]()
        if number % 10 == 0:  # a look at thousands of commits takes seconds
            run.one_writer()


def endless(names: list[str], rng: random.Random) -> Iterator[str]:
    """All names, again and again, each round in a new order."""
    while True:
        yield from rng.sample(names, len(names))


def appeared(root: str, pattern: str, act: Callable[[], None]) -> bool:
    """Act as soon as there is a file that was not there; whether one came in time."""
    folder = Path(settings().checkpoint_root if root == "checkpoints" else settings().lake_root)
    known = set(folder.glob(pattern))
    deadline = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < deadline:
        if set(folder.glob(pattern)) - known:
            act()
            return True
        time.sleep(0.002)  # a commit takes fifty times that; without it a core of two looks and does nothing else
    return False


def kill_python(stack: Stack) -> None:
    kill(stack.driver())


def kill_jvm(stack: Stack) -> None:
    kill(quiet(stack.jvm))


def kill_all(stack: Stack) -> None:
    """The driver's whole group in one system call: nobody sees the other die."""
    driver = stack.driver()
    if driver is not None:
        with suppress(OSError):
            os.killpg(driver.pid, 9)


def kill(process: psutil.Process | None) -> None:
    with suppress(psutil.Error):
        if process is not None:
            process.kill()


WAYS: dict[str, Callable[[Stack], None]] = {"python": kill_python, "JVM": kill_jvm, "both": kill_all}
