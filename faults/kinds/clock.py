"""The driver's clock is an hour off, or its machine stands in another time zone."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from faults.kinds.kills import kill_all
from faults.run import Run

SOURCE = Path(__file__).parent.parent / "clock_shift.c"
WAYS = {
    "TZ Pacific/Auckland": {"TZ": "Pacific/Auckland"},
    "clock an hour ahead": {"SHIFT_SECONDS": "3600"},
    "clock an hour behind": {"SHIFT_SECONDS": "-3600"},
    "TZ America/St_Johns": {"TZ": "America/St_Johns"},
    "the clock as it is": {},
}


def off(run: Run) -> None:
    """Each driver after the other has another idea of the time; supervisor and driver share it."""
    library = compiled(run.stack.folder)
    for way, environment in WAYS.items():
        if run.left() < 40:
            run.result.notes.append(f"{way}: no time was left for it")
            continue
        if "SHIFT_SECONDS" in environment and library is None:
            run.result.notes.append(f"{way}: not run, there is no C compiler (cc)")
            continue
        run.stack.stop_supervising()
        kill_all(run.stack)
        shifted = {"LD_PRELOAD": str(library)} if "SHIFT_SECONDS" in environment else {}
        since = time.monotonic()
        run.stack.supervise(**environment, **shifted)
        run.heals(way, since)
        run.one_writer()


def compiled(folder: Path) -> Path | None:
    """The library that shifts a process's clock, or None where it cannot be made."""
    compiler, library = shutil.which("cc"), folder / "clock_shift.so"
    if compiler is None:
        return None
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library
