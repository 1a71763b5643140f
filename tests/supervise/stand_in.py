"""A small stand-in for the stream driver, in a home of its own: it lives, speaks and dies as the real one does."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.control import streams
from tally.control.store import store
from tally.control.tables import drivers
from tally.supervise import launch

# Takes the lock and registers, as the real driver does, with a child in place of the JVM.
DRIVER = """
import os, subprocess, sys, time
import psutil
from tally.control import incidents, streams
from tally.host import driver_files, lock
held = lock.hold(driver_files.lock_path())
child = subprocess.Popen(["sleep", "300"])
held.adopt(child.pid)
print("airflow in the environment:", [n for n in os.environ if "AIRFLOW" in n], flush=True)
print("no more", flush=True)
streams.register_driver("tally", "here", os.getpid(), psutil.Process().create_time(), "log")
time.sleep(300)
"""
COMMAND = [sys.executable, "-c", DRIVER]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "home"
    (tmp_path / "catalog" / "pipelines").mkdir(parents=True)
    (tmp_path / "catalog" / "topics.py").touch()
    (tmp_path / "catalog" / "pipelines" / "trips.py").touch()
    folder.mkdir()
    monkeypatch.setenv("TALLY_HOME", str(folder))
    monkeypatch.setenv("TALLY_CATALOG", str(tmp_path / "catalog"))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    yield folder
    launch.stop()


def registered() -> None:
    """Return once the stand-in has written its own row: until then it is its launcher's, and will change again."""
    deadline = time.monotonic() + 20
    while (streams.driver("tally") or {}).get("log") != "log" and time.monotonic() < deadline:
        time.sleep(0.05)


def silence(seconds: int) -> None:
    with store().begin() as connection:
        connection.execute(drivers.update().values(heartbeat_at=drivers.c.heartbeat_at - seconds * 1000))
