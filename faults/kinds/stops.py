"""SIGSTOP of the driver in the middle of a commit, a takeover, then SIGCONT: was there a second writer?"""

from __future__ import annotations

import time
from contextlib import suppress

import psutil

from faults.kinds.kills import FILES, appeared, endless
from faults.run import HEAL_SECONDS, Run, quiet
from faults.stack import until

WAYS = ("python", "JVM", "both", "JVM, and python killed", "both, for 5 s")


def frozen(run: Run) -> None:
    """Each way in turn, while time is left."""
    for way in endless(list(WAYS), run.rng):
        if run.left() < 60:
            return
        victims = [found for found in (run.stack.driver(), quiet(run.stack.jvm)) if found is not None]
        if len(victims) == 2:
            freeze(run, way, *victims)
            run.one_writer()
        time.sleep(1)


def freeze(run: Run, way: str, python: psutil.Process, jvm: psutil.Process) -> None:
    """Freeze as a data file of a commit appears; thaw after the takeover, when nothing of the old one may be left."""
    chosen = {"python": [python], "JVM": [jvm], "JVM, and python killed": [jvm]}.get(way, [python, jvm])
    if not appeared(*FILES["table's data"], lambda: [process.suspend() for process in chosen]):
        run.result.notes.append(f"no commit to freeze in ({way})")
        return
    since = time.monotonic()
    if way == "JVM, and python killed":
        python.kill()
    if way == "both, for 5 s":
        time.sleep(5)
        thaw(chosen)
    elif until(lambda: (found := run.stack.driver()) is not None and found.pid != python.pid, HEAL_SECONDS):
        left = [process for process in chosen if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        if left:
            run.broken("I4", f"frozen {way}: process {left[0].pid} still lives after the takeover")
        thaw(chosen)
    run.heals(f"frozen: {way}", since)


def thaw(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.resume()
