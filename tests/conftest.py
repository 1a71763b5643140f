"""One TALLY_HOME, one real broker and one Spark for a test session or each of its workers, gone however that ends."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tally.base.settings import REPO
from tally.embedded import broker as embedded
from tally.embedded.broker_files import free_port

# What these fixtures start takes longer than a hundred tests without them; so do the processes of these folders.
STARTED = {"broker", "spark", "airflow_database"}
STARTING = {"dags", "demo", "embedded", "faults", "integration"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only what needs no Kafka, Spark or Airflow of its own")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: folder_of(item) not in STARTING)  # the long files first: none is alone at the end
    if not config.getoption("--fast"):
        return
    slow = [item for item in items if is_slow(item)]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


def is_slow(item: pytest.Item) -> bool:
    return folder_of(item) in {*STARTING, "orchestration"} or not STARTED.isdisjoint(getattr(item, "fixturenames", ()))


def folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(REPO / "tests").parts[0]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A TALLY_HOME that nothing outside this session has a hand in; other settings are at their defaults."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [
            name for name in os.environ if name.startswith("TALLY_") and name not in ("TALLY_CI_RUN", "TALLY_JARS")
        ]:
            patch.delenv(name)
        patch.setenv("TALLY_HOME", str(folder))
        # No JVM of the tests runs any code long enough: of the first minutes' CPU the second compiler took a third.
        for name in ("TALLY_JAVA_OPTIONS", "TALLY_KAFKA_JAVA_OPTIONS"):
            patch.setenv(name, "-XX:TieredStopAtLevel=1")
        yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def broker(home: Path) -> Iterator[str]:
    """The bootstrap servers of this session's broker, with the catalogue's topics on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_KAFKA_HEAP", "256m")
        patch.setenv("TALLY_KAFKA_PORT", str(free_port()))
        ours = os.getpid()

        def stop() -> None:
            if os.getpid() == ours:  # not in a child that was forked by a test
                with pytest.MonkeyPatch.context() as inner:
                    inner.setenv("TALLY_HOME", str(home))
                    embedded.down()

        atexit.register(stop)
        # Not pytest.exit: that is an Exception, and what guards against any would swallow it.
        earlier = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            yield embedded.up().bootstrap
        finally:
            signal.signal(signal.SIGTERM, earlier)
            stop()
            atexit.unregister(stop)


@pytest.fixture(scope="session")
def spark(home: Path) -> Iterator[SparkSession]:
    """The one Spark session of the tests, configured as the product's own."""
    from tally.lake.session import session

    started = session("tests", memory="2g")  # hundreds of streams, where a driver has a handful
    yield started
    gateway = started.sparkContext._gateway
    started.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # on which its JVM ends, some time after we would have
    gateway.proc.wait(60)


@pytest.fixture(scope="module", autouse=True)
def collected() -> Iterator[None]:
    """After each file, all is let go of that is still named in the Spark session's JVM: queries, frames, tables."""
    yield
    spark = SparkSession.getActiveSession()
    if spark is not None:
        gc.collect()
        forget: Any = spark._jvm
        forget.org.apache.spark.sql.delta.DeltaLog.clearCache()  # each for an hour, by its path


@pytest.fixture(scope="session")
def airflow_database(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> dict[str, str]:
    """What makes a process use an Airflow of this session's tests: its folder, with a migrated database."""
    folder = tmp_path_factory.mktemp("airflow")
    shutil.copy(migrated, folder / "airflow.db")
    return airflow_in(folder)


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty Airflow database, made by the first worker that needs one; the others wait for it."""
    mine = tmp_path_factory.getbasetemp()
    folder = (mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "migrated"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
            subprocess.run(migrate, env=os.environ | airflow_in(folder), check=True, capture_output=True, timeout=300)
            (folder / "done").touch()
    return folder / "airflow.db"


def airflow_in(folder: Path) -> dict[str, str]:
    return {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
    }
