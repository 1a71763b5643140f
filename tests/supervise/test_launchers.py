"""Launchers here: a driver outlives who started it, and is ended with all that it left."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tally.embedded.process import ended
from tally.errors import TallyError
from tally.supervise.launchers import Launched, launcher

SLEEPER = (sys.executable, "-c", "import os, time; print('airflow' in str(os.environ).lower()); time.sleep(300)")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TALLY_") and name != "TALLY_JARS"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_local_driver_lives_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_LAUNCHER", "local")
    started = launcher().start(SLEEPER, tmp_path / "driver.log")
    try:
        assert launcher().lives(started)
        assert os.getsid(started.pid) == started.pid
        assert not launcher().lives(Launched(pid=started.pid, created=started.created - 60, host=started.host))
    finally:
        assert launcher().stop(started)
    assert not launcher().lives(started) and ended_pid(started.pid)
    assert not launcher().stop(started)


def ended_pid(pid: int) -> bool:
    return not psutil.pid_exists(pid) or ended(psutil.Process(pid))


def test_what_a_killed_driver_left_is_ended_too(tmp_path: Path) -> None:
    parent = (sys.executable, "-c", "import subprocess, time; subprocess.Popen(['sleep', '300']); time.sleep(300)")
    started = launcher().start(parent, tmp_path / "driver.log")
    deadline = time.monotonic() + 20
    while not (children := psutil.Process(started.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    psutil.Process(started.pid).kill()
    deadline = time.monotonic() + 5
    while launcher().lives(started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not launcher().lives(started)
    assert launcher().stop(started)
    assert all(ended(child) for child in children)


def test_a_process_of_another_machine_is_neither_taken_for_dead_nor_ended() -> None:
    far = Launched(pid=1, created=0.0, host="elsewhere")
    for ask in (launcher().lives, launcher().stop):
        with pytest.raises(TallyError, match="runs on elsewhere"):
            ask(far)


def test_a_standalone_launcher_wants_a_standalone_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_LAUNCHER", "standalone")
    with pytest.raises(TallyError) as refused:
        launcher().start(SLEEPER, tmp_path / "driver.log")
    assert refused.value.field == "TALLY_SPARK_MASTER"
