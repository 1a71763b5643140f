"""What watching over twenty idle streams costs, under a real Airflow: processor, memory, and rows a day.

The watcher is measured in a process of its own, which does what the one in the triggerer does. Airflow as a whole and
the driver are measured beside it, so that its share can be seen.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from bench.home import fresh_home, memory
from bench.supervision import ONCE, until

STREAMS = 20
PIPELINE = '''
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally import pipeline, tumbling
from topics import rides


@pipeline(reads=rides, window=tumbling("1 minute"), key="vendor_id")
def {name}(rides: DataFrame) -> DataFrame:
    """Trips per vendor, minute by minute."""
    return rides.groupBy("window", "vendor_id").agg(F.count("*").alias("trips"))
'''
WATCHER = """
import sys, time
from tally.supervise.watch import LOOK_SECONDS, Watch

watch, orders = Watch(name="bench"), 0
watch.turn()
print("looking", flush=True)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    orders += watch.turn() is not None
    time.sleep(LOOK_SECONDS)
print(orders, flush=True)
"""
DAY = 86_400


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Twenty streams over a topic in which nothing comes, after all of them have started."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-") as folder:
        catalogue = write(Path(folder))
        with fresh_home(TALLY_CATALOG=str(catalogue), **ONCE) as home:
            from tally.embedded import airflow

            try:
                airflow.start(wait=True)
                until("all streams at rest", at_rest)
                return {"streams": STREAMS, "seconds": given.idle_seconds, **watched(home, given.idle_seconds)}
            finally:
                airflow.stop()


def write(folder: Path) -> Path:
    """A catalogue of one topic, and as many pipelines as there are to be streams."""
    (folder / "pipelines").mkdir()
    topics = 'from tally import topic\n\nrides = topic("rides", schema="{}", event_time="at", lateness="1 minute")\n'
    (folder / "topics.py").write_text(topics.format("ride_id BIGINT, vendor_id INT, at TIMESTAMP"))
    for number in range(STREAMS):
        (folder / "pipelines" / f"trips_{number:02d}.py").write_text(PIPELINE.format(name=f"trips_{number:02d}"))
    return folder


def at_rest() -> bool:
    from tally.supervise.status import diagnose_all

    states = [health.state for health in diagnose_all()]
    return len(states) == STREAMS and set(states) <= {"idle", "healthy"}


def watched(home: Path, seconds: float) -> dict[str, Any]:
    """What everything that supervises used and wrote meanwhile."""
    from tally.host import driver_files, lock

    airflow = psutil.Process(int(json.loads((home / "run" / "airflow.json").read_text())["pid"]))
    driver = lock.holder(driver_files.lock_path())
    assert driver is not None, "no driver runs"
    child = psutil.Popen([sys.executable, "-c", WATCHER, str(seconds)], stdout=-1, text=True)
    assert child.stdout is not None and child.stdout.readline() == "looking\n"
    parts = {"watcher": child, "airflow": airflow, "driver": driver}
    before, rows, began = {name: cpu(one) for name, one in parts.items()}, counted(home), time.monotonic()
    time.sleep(seconds - 2.0)
    took = time.monotonic() - began
    found: dict[str, Any] = {}
    for name, one in parts.items():
        found[f"{name}_cpu_percent"] = round(100 * (cpu(one) - before[name]) / took, 2)
        found[f"{name}_mb"] = round(memory(one) / 2**20)
    found["rows_a_day"] = {
        name: round((number - rows.get(name, 0)) * DAY / took)
        for name, number in counted(home).items()
        if number != rows.get(name, 0)
    }
    found["orders"] = int(child.stdout.readline())
    child.wait()
    return found


def cpu(process: psutil.Process) -> float:
    """Seconds so far of a process and all below it, those that have ended too."""
    used = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            used += sum(one.cpu_times()[:4])  # its own, and what the children had that it has waited for
    return used


def counted(home: Path) -> dict[str, int]:
    """The rows of every table of Airflow's database and of the control store."""
    found = {}
    for name, file in (("airflow", home / "airflow" / "airflow.db"), ("control", home / "control.db")):
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as database:
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                found[f"{name}.{table}"] = int(database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])
    return found
