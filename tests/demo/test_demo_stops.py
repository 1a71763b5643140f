"""Whatever stops a demo, half-way or in full, nothing of it is left: no process, no port, no pid file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tally.embedded.broker_files import free_port, is_free
from tally.host.waiting import until

TALLY = str(Path(sys.executable).parent / "tally")


@pytest.fixture
def demo_home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    subprocess.run([TALLY, "down"], env=environment(tmp_path / "home"), check=False, capture_output=True, timeout=400)


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


def environment(home: Path, **more: str) -> dict[str, str]:
    ours = ("TALLY_", "AIRFLOW")
    kept = {name: value for name, value in os.environ.items() if name == "TALLY_JARS" or not name.startswith(ours)}
    small = {"TALLY_KAFKA_HEAP": "256m", "TALLY_KAFKA_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    return {**kept, "TALLY_HOME": str(home), **small, **more}


def of_home(home: Path) -> list[str]:
    """Every process that was started for this home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TALLY_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def wait_for(what: str, log: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while what not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


def test_a_busy_kafka_port_is_named_and_nothing_is_left(demo_home: Path, busy: int) -> None:
    env = environment(demo_home, TALLY_KAFKA_PORT=str(busy))
    done = subprocess.run([TALLY, "demo"], env=env, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "TALLY_KAFKA_PORT" in done.stderr and str(busy) in done.stderr and "Traceback" not in done.stderr
    assert of_home(demo_home) == []


def test_a_failure_half_way_takes_down_what_was_up(demo_home: Path, busy: int) -> None:
    port = free_port()
    env = environment(demo_home, TALLY_KAFKA_PORT=str(port), TALLY_AIRFLOW_PORT=str(busy))
    command = [TALLY, "demo", "--past", "1 minute"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "producer: up" in done.stdout
    assert "TALLY_AIRFLOW_PORT" in done.stderr and str(busy) in done.stderr
    assert of_home(demo_home) == [] and is_free(port)
    assert not list((demo_home / "run").glob("*.json"))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_a_signal_while_airflow_starts_stops_everything(demo_home: Path, tmp_path: Path, number: int) -> None:
    port, log = free_port(), tmp_path / "demo.log"
    env = environment(demo_home, TALLY_KAFKA_PORT=str(port), TALLY_AIRFLOW_PORT=str(free_port()))
    with log.open("w") as out:
        command = [TALLY, "demo", "--past", "1 minute"]
        demo = subprocess.Popen(command, env={**env, "PYTHONUNBUFFERED": "1"}, stdout=out, stderr=out)
    wait_for("Airflow: starting", log, 120)
    assert until(lambda: len(of_home(demo_home)) >= 4, seconds=120, every=0.2), (
        "a check that cannot fail proves nothing"
    )
    demo.send_signal(number)
    demo.send_signal(number)  # an impatient second Ctrl-C cuts nothing short
    assert demo.wait(timeout=150) == 0, log.read_text()
    assert of_home(demo_home) == [] and is_free(port)
    assert not list((demo_home / "run").glob("*.json"))


def test_a_killed_demo_is_ended_by_down(demo_home: Path, tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "demo.log"
    env = environment(demo_home, TALLY_KAFKA_PORT=str(port), TALLY_AIRFLOW_PORT=str(free_port()))
    with log.open("w") as out:
        command = [TALLY, "demo", "--past", "1 minute"]
        demo = subprocess.Popen(command, env={**env, "PYTHONUNBUFFERED": "1"}, stdout=out, stderr=out)
    wait_for("Airflow: starting", log, 120)
    demo.kill()
    demo.wait(timeout=10)
    assert not is_free(port)
    down = subprocess.run([TALLY, "down"], env=env, capture_output=True, text=True, timeout=150, check=False)
    assert down.returncode == 0 and "broker" in down.stdout, down.stdout + down.stderr
    assert of_home(demo_home) == [] and is_free(port)
