"""The library that a campaign preloads moves a process's wall clock, and leaves its waits and its own clock alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults.kinds.clock import compiled

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
LOOK = """
import json, subprocess, sys, threading, time
from datetime import datetime, timezone

began, lock = time.monotonic(), threading.Lock()
lock.acquire()
time.sleep(0.2)
timed_out = not threading.Event().wait(0.2)
refused = not lock.acquire(timeout=0.2)
child = subprocess.run([sys.executable, "-c", "import time; print(time.time())"], capture_output=True, text=True)
print(json.dumps({
    "wall": time.time(), "date": datetime.now(timezone.utc).timestamp(), "child": float(child.stdout),
    "monotonic": time.monotonic(), "waited": time.monotonic() - began, "timed_out": timed_out and refused,
}))
"""


@needs_compiler
@pytest.mark.parametrize("shift", [3600, -3600])
def test_the_wall_clock_moves_and_nothing_else(tmp_path: Path, shift: int) -> None:
    library = compiled(tmp_path)
    shifted = {**os.environ, "LD_PRELOAD": str(library), "SHIFT_SECONDS": str(shift)}
    before, ours = time.monotonic(), time.time()
    done = subprocess.run([sys.executable, "-c", LOOK], env=shifted, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen, took = json.loads(done.stdout), time.monotonic() - before
    for clock in ("wall", "date", "child"):
        assert 0 <= seen[clock] - ours - shift <= took, clock
    assert before <= seen["monotonic"] <= before + took, "the machine's own clock is as it was"
    assert seen["timed_out"] and 0.6 <= seen["waited"] <= took


def test_without_a_compiler_there_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert compiled(tmp_path) is None
