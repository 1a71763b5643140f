"""Drivers here: a driver outlives who started it, and is ended with all that it left."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tally.base.errors import TallyError
from tally.host import driver_files, lock, process
from tally.host.process import ended
from tally.supervise import launch

SLEEPER = (sys.executable, "-c", "import os, time; print('airflow' in str(os.environ).lower()); time.sleep(300)")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("TALLY_") and name != "TALLY_JARS"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    return tmp_path


def test_a_local_driver_lives_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_LAUNCHER", "local")
    started = launch.spawn("tally", SLEEPER, tmp_path / "driver.log")
    try:
        found = process.find(driver_files.run_file())
        assert found is not None and found.pid == started.pid
        assert os.getsid(started.pid) == started.pid
        assert lock.live({"pid": started.pid, "created": started.created})
        assert not lock.live({"pid": started.pid, "created": started.created - 60})
    finally:
        assert launch.stop()
    assert process.find(driver_files.run_file()) is None and ended_pid(started.pid)
    assert not launch.stop()


def ended_pid(pid: int) -> bool:
    return not psutil.pid_exists(pid) or ended(psutil.Process(pid))


def test_what_a_killed_driver_left_is_ended_too(tmp_path: Path) -> None:
    parent = (sys.executable, "-c", "import subprocess, time; subprocess.Popen(['sleep', '300']); time.sleep(300)")
    started = launch.spawn("tally", parent, tmp_path / "driver.log")
    deadline = time.monotonic() + 20
    while not (children := psutil.Process(started.pid).children()) and time.monotonic() < deadline:
        time.sleep(0.05)
    psutil.Process(started.pid).kill()
    deadline = time.monotonic() + 5
    while process.find(driver_files.run_file()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.find(driver_files.run_file()) is None
    assert launch.stop()
    assert all(ended(child) for child in children)


def test_a_process_of_another_start_of_a_machine_is_neither_found_nor_ended(tmp_path: Path) -> None:
    """A home on a disk that several machines share: the pid means another process here."""
    started = launch.spawn("tally", SLEEPER, tmp_path / "driver.log")
    mine = process.read_json(driver_files.run_file())
    try:
        process.write_json(driver_files.run_file(), {**mine, "boot": "elsewhere"})
        assert process.find(driver_files.run_file()) is None
        assert not launch.stop()
        assert not ended_pid(started.pid)
    finally:
        process.write_json(driver_files.run_file(), mine)
        assert launch.stop()


def test_a_standalone_launcher_wants_a_standalone_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_LAUNCHER", "standalone")
    with pytest.raises(TallyError) as refused:
        launch.spawn("tally", SLEEPER, tmp_path / "driver.log")
    assert refused.value.field == "TALLY_SPARK_MASTER"
