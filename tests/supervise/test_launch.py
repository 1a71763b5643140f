"""Launching: one driver, adopted when it lives, replaced when it is dead or hangs. The driver is a small stand-in."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tally.control import streams
from tally.control.store import store
from tally.control.tables import drivers
from tally.embedded.process import ended
from tally.errors import AnswerIsNo
from tally.supervise import launch

# Takes the lock and registers, as the real driver does, with a child in place of the JVM.
DRIVER = """
import os, subprocess, sys, time
import psutil
from tally.control import streams
from tally.supervise import launch, lock
held = lock.hold(launch.lock_path())
child = subprocess.Popen(["sleep", "300"])
held.adopt(child.pid)
streams.register_driver("tally", "here", os.getpid(), psutil.Process().create_time(), "log")
print("airflow in the environment:", [n for n in os.environ if "AIRFLOW" in n], flush=True)
time.sleep(300)
"""
COMMAND = [sys.executable, "-c", DRIVER]


@pytest.fixture(autouse=True)
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
    deadline = time.monotonic() + 20
    while streams.driver("tally") is None and time.monotonic() < deadline:
        time.sleep(0.05)


def test_none_lives_one_is_started_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", "secret")
    first = launch.ensure(command=COMMAND)
    assert first.saw == "no driver was ever started"
    assert first.pid is not None
    registered()
    second = launch.ensure(command=COMMAND)
    assert (second.pid, second.did) == (first.pid, "nothing to do")
    assert "spoke" in second.saw
    assert psutil.Process(first.pid).ppid() in (1, psutil.Process().pid)
    assert "airflow in the environment: []" in Path(first.log).read_text()


def test_a_killed_driver_is_replaced_and_leaves_no_child_behind() -> None:
    first = launch.ensure(command=COMMAND)
    registered()
    assert first.pid
    (child,) = psutil.Process(first.pid).children()
    psutil.Process(first.pid).send_signal(signal.SIGKILL)
    time.sleep(0.3)
    second = launch.ensure(command=COMMAND)
    assert second.saw == "no driver lives"
    assert second.pid not in (None, first.pid)
    assert ended(child)


def test_a_driver_that_says_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    first = launch.ensure(command=COMMAND)
    registered()
    monkeypatch.setattr(launch, "SILENCE_MS", 500)
    with store().begin() as connection:
        connection.execute(drivers.update().values(heartbeat_at=drivers.c.heartbeat_at - 60_000))
    time.sleep(0.6)
    second = launch.ensure(command=COMMAND)
    assert "has said nothing for 6" in second.saw
    assert second.pid != first.pid
    assert first.pid and not psutil.pid_exists(first.pid)


def test_when_every_stream_is_paused_nothing_is_started() -> None:
    streams.want("trips", "paused", by="test", why="test")
    assert launch.ensure(command=COMMAND).pid is None


def test_a_driver_that_ends_at_once_is_a_failure_with_its_last_words() -> None:
    with pytest.raises(AnswerIsNo, match=r"(?s)ended at once.*no Spark jars"):
        launch.ensure(command=[sys.executable, "-c", "raise SystemExit('no Spark jars')"])


def test_stop_ends_a_driver_that_was_started_by_hand(home: Path) -> None:
    import subprocess

    byhand = subprocess.Popen(COMMAND)
    registered()
    assert launch.stop()
    assert byhand.wait(timeout=5) is not None
    assert not launch.stop()
