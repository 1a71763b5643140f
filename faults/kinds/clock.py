"""The driver's clock is an hour off, or its machine stands in another time zone."""

from __future__ import annotations

import time
from pathlib import Path

from faults.kinds.kills import kill_all
from faults.run import Run

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
FAKE = {"LD_PRELOAD": LIBRARY, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
WAYS = {
    "TZ Pacific/Auckland": {"TZ": "Pacific/Auckland"},
    "clock an hour ahead": {**FAKE, "FAKETIME": "+3600"},
    "clock an hour behind": {**FAKE, "FAKETIME": "-3600"},
    "TZ America/St_Johns": {"TZ": "America/St_Johns"},
    "the clock as it is": {},
}


def off(run: Run) -> None:
    """Each driver after the other has another idea of the time; supervisor and driver share it."""
    for way, environment in WAYS.items():
        if run.left() < 40:
            return
        if "LD_PRELOAD" in environment and not Path(LIBRARY).exists():
            run.result.notes.append(f"{way}: not run, libfaketime is not installed")
            continue
        run.stack.stop_supervising()
        kill_all(run.stack)
        since = time.monotonic()
        run.stack.supervise(**environment)
        run.heals(way, since)
        run.one_writer()
