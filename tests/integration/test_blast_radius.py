"""A function that takes its driver along is cut out of its topic's stream, and the others go on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bespoke
import pytest
from bespoke import MINUTE, T0, Bespoke
from pyspark.sql import SparkSession

from tally.catalog.load import catalogue
from tally.control import incidents, ledger, streams
from tally.speed.driver import Driver

TOPIC = """
sales = topic("{name}", schema="shop INT, amount DOUBLE, at TIMESTAMP", event_time="at", lateness="1 minute")
"""
HEALTHY = """
@pipeline(reads=sales, window=tumbling("1 minute"), key="shop")
def {name}(sales):
    return sales.groupBy("window", "shop").agg(F.count("*").alias("n"))
"""
# One event makes a text of it that no heap of a test can hold: the JVM ends there, and the driver with it.
DEADLY = """
@pipeline(reads=sales, window=tumbling("1 minute"), key="shop")
def deadly(sales):
    times = F.when(F.col("amount") == 666, 1_500_000_000).otherwise(1)
    return sales.groupBy("window", "shop").agg(F.max(F.length(F.repeat(F.lit("x"), times))).alias("longest"))
"""
MENDED = DEADLY.replace("1_500_000_000", "2")
NAMES = ["before", "deadly", "healthy"]


@pytest.fixture
def sales(spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bespoke:
    monkeypatch.setenv("TALLY_SHARED", "true")
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "10")
    functions = {name: HEALTHY.format(name=name) for name in ("before", "healthy")} | {"deadly": DEADLY}
    made = bespoke.make(tmp_path, broker, monkeypatch, TOPIC.format(name=tmp_path.name), functions)
    for number in range(25):
        at = T0 + number * MINUTE // 4
        made.send(tmp_path.name, {"shop": number % 2, "amount": 666 if number == 13 else number, "at": at})
    return made


def drive() -> str:
    """A driver of its own process, to its end, and what it says."""
    command = [sys.executable, "-c", "from tally.cli import main; main()", "stream", "--until-caught-up"]
    environment = {**os.environ, "TALLY_STREAM_MEMORY": "512m"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    return done.stdout + done.stderr


def batches(name: str) -> int:
    return len(ledger.read(name, catalogue().pipeline(name).version))


def test_the_others_go_on_after_two_deaths_and_it_does_once_it_is_mended(sales: Bespoke) -> None:
    for _ in range(2):
        assert "out of memory" in drive()
    assert [batches(name) for name in NAMES] == [1, 1, 1]
    (failed,) = Driver([], until_caught_up=True).run()
    assert failed.pipeline == "deadly" and "2 drivers in a row died while it ran in micro-batch 1" in failed.message
    assert [batches(name) for name in NAMES] == [3, 1, 3]
    assert (streams.stream("deadly") or {})["state"] == "gave_up"
    (told,) = incidents.opened("deadly")
    assert "drivers in a row died" in told.evidence and "tally restart deadly" in told.cure
    (sales.folder / "catalogue" / "pipelines" / "deadly.py").write_text(bespoke.HEAD + MENDED)
    streams.want_anew("deadly", by="test", why="mended")
    sales.stream()
    assert [batches(name) for name in NAMES] == [3, 3, 3]
