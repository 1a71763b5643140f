"""The broker is killed while records are sent and fetched, and stays away for a while."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import psutil

from faults.run import Run
from tally.base.settings import settings


def killed(run: Run) -> None:
    """kill -9, and started again at once, while time is left."""
    while run.left() > 60:
        time.sleep(run.rng.uniform(0.5, 3.0))
        away(run, run.rng.uniform(0, 5), "broker killed")


def away_for_long(run: Run) -> None:
    """Three minutes without a broker."""
    away(run, 180, "broker away for 3 minutes")


def away(run: Run, seconds: float, point: str) -> None:
    """The broker dies, and comes again after so many seconds; healing is counted from there."""
    found = json.loads(settings().broker_file.read_text())
    with suppress(psutil.Error):
        psutil.Process(found["pid"]).kill()
    time.sleep(seconds)
    since = time.monotonic()
    run.stack.tally("up")
    run.heals(point, since, by="itself, once the broker is up")
    run.one_writer()
