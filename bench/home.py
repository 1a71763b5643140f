"""A TALLY_HOME of its own for one measurement, with a broker, gone again at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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


def tally(*arguments: str) -> Any:
    """Run one verb with --json to its end; its document."""
    done = subprocess.run([TALLY, *arguments, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"tally {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr[-2000:]}"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def timed(*arguments: str) -> tuple[Any, dict[str, float]]:
    """Run one verb; its document, and what it cost: wall seconds, CPU seconds of it and its JVM, peak memory in MB."""
    peak, cpu, began = 0, dict[int, float](), time.monotonic()
    with tempfile.TemporaryFile("w+") as out:  # no pipe: a document of thousands of ranges would fill it, and wait
        process = subprocess.Popen([TALLY, *arguments, "--json"], stdout=out, stderr=subprocess.DEVNULL)
        parent = psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, memory(parent))
            cpu.update(cpu_by_process(parent))
            time.sleep(0.2)
        took = time.monotonic() - began
        out.seek(0)
        document = json.loads(out.read().strip().splitlines()[-1])
    cost = {
        "wall_seconds": round(took, 1),
        "cpu_seconds": round(sum(cpu.values()), 1),
        "peak_mb": round(peak / 2**20),
    }
    return document, cost


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
