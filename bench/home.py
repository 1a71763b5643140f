"""A TALLY_HOME of its own for one measurement, with a broker, gone again at the end; and what a process costs."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

TALLY = str(Path(sys.executable).parent / "tally")


@contextmanager
def fresh_home(**settings: str) -> Iterator[Path]:
    """The path of a new home whose broker runs; meanwhile the environment names it, and the given settings."""
    folder, before = Path(tempfile.mkdtemp(prefix="tally-bench-")), dict(os.environ)
    os.environ.update({"TALLY_HOME": str(folder), **settings})
    try:
        tally("up")
        yield folder
    finally:
        tally("down")
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def catalogue(topics: str, pipelines: dict[str, str], **settings: str) -> Iterator[tuple[Path, str]]:
    """A new home with a catalogue of its own, given as text; its folder and the broker's address."""
    with tempfile.TemporaryDirectory(prefix="tally-catalogue-") as folder:
        (Path(folder) / "pipelines").mkdir()
        (Path(folder) / "topics.py").write_text(topics)
        for name, text in pipelines.items():
            (Path(folder) / "pipelines" / f"{name}.py").write_text(text)
        with fresh_home(TALLY_CATALOG=folder, **settings) as home:
            yield home, tally("up")["bootstrap"]


def tally(*arguments: str) -> Any:
    """Run one verb with --json to its end; its document."""
    done = subprocess.run([TALLY, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"tally {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def timed(*arguments: str) -> tuple[Any, dict[str, float]]:
    """Run one verb; its document, and what it cost."""
    return run([TALLY, *arguments, "--json"])


def run(command: Sequence[str]) -> tuple[Any, dict[str, float]]:
    """Run a command; the JSON of its last line, and what it cost.

    That is wall seconds, CPU seconds of it and its JVM, megabytes that these read from files and sockets, peak memory
    in MB.
    """
    peak, used, began = 0, dict[int, tuple[float, int]](), time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as faults:
        # No pipe: a document of thousands of ranges would fill it, and wait.
        process = subprocess.Popen(command, stdout=out, stderr=faults)
        parent = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, memory(parent))
            used.update(used_by_process(parent))
            time.sleep(0.1)
        took = time.monotonic() - began
        out.seek(0)
        faults.seek(0)
        lines = out.read().strip().splitlines()
        if not lines:
            raise SystemExit(f"{' '.join(command[:4])} ended with {process.returncode}: {faults.read()[-2000:]}")
        document = json.loads(lines[-1])
    cost = {
        "wall_seconds": round(took, 1),
        "cpu_seconds": round(sum(cpu for cpu, _ in used.values()), 1),
        "read_mb": round(sum(read for _, read in used.values()) / 1e6),
        "peak_mb": round(peak / 2**20),
    }
    return document, cost


def middle(costs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each part of some costs, and the fastest and the slowest of the wall times."""
    walls = sorted(cost["wall_seconds"] for cost in costs)
    found = {name: statistics.median(cost[name] for cost in costs) for name in costs[0]}
    return {**found, "fastest": walls[0], "slowest": walls[-1]}


def used_by_process(parent: psutil.Process) -> dict[int, tuple[float, int]]:
    """CPU seconds and bytes read so far of a process and all below it."""
    found = {}
    for pid, cpu in cpu_by_process(parent).items():
        with suppress(psutil.Error):
            found[pid] = cpu, psutil.Process(pid).io_counters().read_chars
    return found


def cpu_by_process(parent: psutil.Process) -> dict[int, float]:
    """CPU seconds so far of a process and all below it: nobody waits for the JVM, so the system adds it to no one's."""
    found = {}
    with suppress(psutil.Error):
        for process in [parent, *parent.children(recursive=True)]:
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def memory(parent: psutil.Process) -> int:
    """Resident bytes of a process and all below it."""
    total = 0
    try:
        for process in [parent, *parent.children(recursive=True)]:
            total += process.memory_info().rss
    except psutil.Error:
        pass
    return total
