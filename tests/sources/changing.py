"""A topic of six records and a pipeline on it, whose definition a test writes anew, and a copy of what was archived."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import world as worlds
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tally.base.duration import from_millis, iso
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.spec import Topic
from tally.control import runs
from tally.sources import archive
from tally.sources.ingest import ingest
from tally.sources.records import contract
from tally.sources.witnesses import commit_copies, verification

MINUTE = 60_000
T0 = worlds.T0
PLAIN = "id BIGINT, zone INT NOT NULL, fare DOUBLE, at TIMESTAMP"
TOPICS = """
from tally import topic

rides = topic("{name}", schema="{schema}", event_time="{time}", lateness="1 minute", partitions=2)
"""
PIPELINE = """
from pyspark.sql import functions as F
from topics import rides

from tally import pipeline, tumbling


@pipeline(reads=rides, window=tumbling("1 minute"), key="zone")
def demand(rides):
    return rides.groupBy("window", "zone").agg({measures})
"""
COUNT = 'F.count("*").alias("n")'


# Without a zone, with a tip, four and nine minutes ahead of their broker time, and one that is refused.
BODIES: list[dict[str, Any]] = [
    {"id": 1, "zone": 1, "fare": 1.5, "at": T0},
    {"id": 2, "fare": 2.5, "at": T0},
    {"id": 3, "zone": 1, "fare": 3.5, "at": T0 + MINUTE, "tip": 0.5},
    {"id": 4, "zone": 1, "fare": 4.5, "at": T0 + 4 * MINUTE, "seen": T0 - 20 * MINUTE},
    {"id": 5, "zone": 2, "fare": 5.5, "at": T0 + 9 * MINUTE},
    {"id": 6, "zone": 2, "fare": "x", "at": T0 + MINUTE},
]


def define(name: str, schema: str = PLAIN, *, time: str = "at", measures: str = COUNT) -> Topic:
    """Write the catalogue; its topic."""
    folder = settings().catalog
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "topics.py").write_text(TOPICS.format(name=name, schema=schema, time=time))
    (folder / "pipelines" / "demand.py").write_text(PIPELINE.format(measures=measures))
    return catalogue().topics[name]


def rows(start: int = -60, end: int = 60) -> list[dict[str, Any]]:
    """All that the batch layer has once `tally batch` has stated these minutes."""
    from tally.batch import restate
    from tally.jobs.batch import batch

    batch("demand", iso(from_millis(T0 + start * MINUTE)), iso(from_millis(T0 + end * MINUTE)))
    table = DeltaTable(restate.path(catalogue().pipeline("demand"))).to_pyarrow_table()
    found = table.drop_columns(["window_end", "_date"]).to_pylist()
    return sorted(found, key=lambda row: (row["window_start"], row["zone"] is None, row["zone"]))


@contextmanager
def archived_once(broker: str, spark: SparkSession, folder: Path, name: str) -> Iterator[Path]:
    """A home with the topic's six records, ingested in two goes; its folder."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in (("CATALOG", str(folder / "spark")), ("HOME", str(folder / "home")), ("KAFKA", broker)):
            patch.setenv(f"TALLY_{key}", value)
        config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
        admin = AdminClient({"bootstrap.servers": broker})
        admin.create_topics([NewTopic(name, 2, 1, config=config)])[name].result(15)
        topic = define(name)
        for half in (BODIES[:3], BODIES[3:]):
            produce(broker, name, half)
            ingest(spark, topic)
        yield folder


@contextmanager
def copied(made: Path, folder: Path, broker: str) -> Iterator[Topic]:
    """The same topic, with a copy of all that was archived."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in (("CATALOG", str(folder / "spark")), ("HOME", str(folder / "home")), ("KAFKA", broker)):
            patch.setenv(f"TALLY_{key}", value)
        for part in ("spark", "home"):
            shutil.copytree(made / part, folder / part)
        (topic,) = catalogue().topics.values()
        yield topic


def produce(broker: str, name: str, bodies: list[dict[str, Any]]) -> None:
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for body in bodies:
        value, key = json.dumps(body).encode(), str(body["id"])
        producer.produce(name, value, key=key, partition=body["id"] % 2, timestamp=T0)
    assert producer.flush(15) == 0


def killed(failpoint: str, *words: str) -> None:
    """Run a verb of the command line that dies there; any other end is a failure of the test itself."""
    done = subprocess.run(
        [sys.executable, "-c", "from tally.cli import main; main()", *words],
        env={**os.environ, "TALLY_FAILPOINT": failpoint, "TALLY_SPARK_MEMORY": "512m"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def archived(spark: SparkSession, topic: Topic) -> dict[int, Any]:
    """The archive's rows by id; each knows its bytes and the contract of now."""
    found = {row["id"]: row for row in spark.read.format("delta").load(archive.path(topic)).collect()}
    for row in found.values():
        assert row["_contract"] == contract.of(topic)
        assert bytes(row["_key"]).decode() == str(row["id"]) == str(json.loads(bytes(row["_value"]))["id"])
        assert row["_ingest"] == (row["id"] > 3)
    return found


def refused(spark: SparkSession, topic: Topic) -> dict[str, str]:
    rows = spark.read.format("delta").load(archive.quarantine_path(topic)).collect()
    assert {row["_contract"] for row in rows} <= {contract.of(topic)}
    return {bytes(row["_key"]).decode(): row["_reason"] for row in rows}


def check(spark: SparkSession, topic: Topic) -> None:
    """Each record is in one place, the manifests hold, and the counts by ingest are those of the rows."""
    kept, not_kept = archived(spark, topic), refused(spark, topic)
    assert sorted([*map(str, kept), *not_kept]) == ["1", "2", "3", "4", "5", "6"]
    assert verification.verify(spark, verification.Extent(topic=topic, deep=True)) == []
    history = runs.ingest_history(topic.name)
    assert [row.archived for row in history] == [sum(i <= 3 for i in kept), sum(i > 3 for i in kept)]
    assert [sum(row.quarantined.values()) + row.archived for row in history] == [3, 3]
    before = runs.ingest_history(topic.name)
    commit_copies.repair(topic, whole=True)
    assert runs.ingest_history(topic.name) == before, "the words are the truth"
