"""How soon a dead or hung stream driver is noticed and a new one commits, under a real Airflow.

The clock starts right before the signal. Noticed: the control store names the launch of another driver. Committed: the
first micro-batch that the new driver wrote is in the ledger. A new Airflow first archives each topic and runs a batch
of each pipeline; they are waited for, since the JVMs beside it would be what is measured.
"""

from __future__ import annotations

import argparse
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.home import TALLY, fresh_home

PIPELINE = "vendor_trips"
PATIENCE = 600.0
# Batches and archive runs: as it starts, and never again.
ONCE = dict.fromkeys(("TALLY_ARCHIVE_EVERY", "TALLY_BATCH_EVERY"), "0 0 1 1 *")
STEADY_SECONDS = 8.0  # between two faults: the new driver's first micro-batches are over


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Kill and stop drivers under a running Airflow, and time what follows."""
    with fresh_home(**ONCE) as home:
        from tally.embedded import airflow

        producer = subprocess.Popen(
            [TALLY, "produce", "rides", "--rate", f"{given.kill_rate:g}", "--no-payments"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            airflow.start(wait=True)
            until("the first micro-batch", committed(0))
            until("the end of Airflow's first runs", partial(first_runs_are_over, home))
            killed = [fault(signal.SIGKILL) for _ in range(given.kills)]
            hung = [fault(signal.SIGSTOP) for _ in range(given.hangs)]
        finally:
            producer.send_signal(signal.SIGTERM)
            producer.wait(60)
            airflow.stop()
        return {"rate": given.kill_rate, "killed": summed(killed), "hung": summed(hung)}


def first_runs_are_over(home: Path) -> bool:
    """Whether each pipeline's batch has run, and nothing runs now."""
    from tally.catalog.load import catalogue

    with sqlite3.connect(f"file:{home / 'airflow' / 'airflow.db'}?mode=ro", uri=True) as database:
        states = list(database.execute("SELECT dag_id, state FROM dag_run"))
    ended = {dag for dag, state in states if state in ("success", "failed")}
    due = {f"batch__{name}" for name in catalogue().pipelines}
    return due <= ended and all(state in ("success", "failed") for _, state in states)


def fault(number: signal.Signals) -> tuple[float, float]:
    """Signal the driver; seconds until another was launched, and until that one's first commit."""
    from tally.control import streams
    from tally.host import driver_files, lock

    time.sleep(STEADY_SECONDS)
    driver = lock.holder(driver_files.lock_path())
    assert driver is not None, "no driver runs"
    launched = int((streams.driver(driver_files.APP) or {})["launched_at"])
    began, at = time.monotonic(), time.time()
    driver.send_signal(number)
    until(
        "another driver",
        lambda: int((streams.driver(driver_files.APP) or {})["launched_at"]) > max(launched, at * 1000),
    )
    noticed = time.monotonic() - began
    until("its first commit", committed(int((time.time()) * 1000)))
    return noticed, time.monotonic() - began


def committed(after_ms: int) -> Callable[[], bool]:
    """Whether a micro-batch was committed after a moment."""
    from tally.catalog.load import catalogue
    from tally.control import ledger

    pipeline = catalogue().pipeline(PIPELINE)

    def look() -> bool:
        newest = ledger.newest(pipeline.name, pipeline.version)
        return newest is not None and newest.committed_at > after_ms

    return look


def until(what: str, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {PATIENCE:.0f} s; see the logs below TALLY_HOME")
        time.sleep(0.05)


def summed(times: list[tuple[float, float]]) -> dict[str, Any]:
    """Median, 95th percentile and worst of both times, in seconds."""
    if not times:
        return {}
    found: dict[str, Any] = {"times": len(times)}
    for name, column in zip(("noticed", "committed"), zip(*times, strict=True), strict=True):
        ordered = sorted(column)
        p95 = ordered[min(len(ordered) - 1, -(-95 * len(ordered) // 100) - 1)]
        found[name] = {
            "p50": round(ordered[len(ordered) // 2], 2), "p95": round(p95, 2), "worst": round(ordered[-1], 2),
            "each": [round(seconds, 1) for seconds in column],
        }  # fmt: skip
    return found
