"""A standalone cluster: the driver here, its executors in a worker; the same rows, and both layers reconcile."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oracle
import psutil
import pytest
import world as worlds
from world import World

from tally.embedded.broker_files import free_port
from tally.host import driver_files, process
from tally.lake.session import spark_home
from tally.supervise import launch

pytestmark = pytest.mark.long

NAME = "tumbling_u"
TALLY = str(Path(sys.executable).parent / "tally")
PART = "org.apache.spark.deploy.{}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A master and one worker of the installed Spark: the master's address, and where executors write their logs."""
    work = tmp_path / "work"
    work.mkdir()
    address = ("127.0.0.1", free_port())
    url = f"spark://127.0.0.1:{address[1]}"
    parts = [
        ("master.Master", "--host", address[0], "--port", str(address[1]), "--webui-port", str(free_port())),
        ("worker.Worker", "--host", address[0], "--webui-port", str(free_port()), "--work-dir", str(work),
         "--cores", "2", "--memory", "1g", url),
    ]  # fmt: skip
    env = {**os.environ, "SPARK_HOME": str(spark_home()), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
    started = []
    with (tmp_path / "cluster.log").open("wb") as out:
        try:
            for name, *arguments in parts:
                command = [str(spark_home() / "bin" / "spark-class"), PART.format(name), *arguments]
                started.append(psutil.Popen(command, stdout=out, stderr=out, env=env))
                wait_for(address)
            yield url, work
        finally:
            for part in reversed(started):
                for one in (*part.children(recursive=True), part):
                    one.terminate()
                part.wait(20)


def wait_for(address: tuple[str, int]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as tried:
            if tried.connect_ex(address) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the master did not come up")


@pytest.fixture
def world(cluster: tuple[str, Path], broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = worlds.make(tmp_path / "world", "standalone.", broker, monkeypatch, [NAME])
    monkeypatch.setenv("TALLY_LAUNCHER", "standalone")
    monkeypatch.setenv("TALLY_SPARK_MASTER", cluster[0])
    monkeypatch.setenv("TALLY_SPARK_CONF", "spark.cores.max=2 spark.executor.memory=512m")
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "40")
    made.produce([*worlds.story(11, 220, made.prefix), *worlds.flush(made.prefix)])
    return made


def tally(*arguments: str) -> Any:
    done = subprocess.run([TALLY, *arguments, "--json"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"tally {arguments}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return json.loads(done.stdout)


def test_both_layers_run_on_executors_and_reconcile(world: World, cluster: tuple[str, Path], tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    launch.spawn("tally", (*launch.DRIVER, NAME, "--until-caught-up"), log)
    world.starts[NAME] = {0}
    world.drained.append(dict(world.ends))
    deadline = time.monotonic() + 240
    try:
        while process.find(driver_files.run_file()) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert not process.find(driver_files.run_file()), log.read_text()[-3000:]
    finally:
        launch.stop()
    shape, truth = worlds.shape_of(NAME), world.truth(NAME)
    assert len(world.ledger(NAME)) > 2, log.read_text()[-3000:]
    assert world.table("speed", NAME) == world.told(NAME).rows
    start, end = world.span()
    tally("batch", NAME, "--from", start, "--to", end)
    assert world.table("batch", NAME) == oracle.batch_rows(shape, truth)
    found = tally("reconcile", NAME, "--from", start, "--to", end)
    assert found["verdict"] == "reconciled" and found["unexplained"] == 0
    assert found["events"].get("late", 0) > 0, "a story without late events proves little"
    ran = [file for file in cluster[1].glob("app-*/*/stderr") if file.stat().st_size]
    assert len({file.parts[-3] for file in ran}) == 3, "three applications, each on an executor of the worker"
