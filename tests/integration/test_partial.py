"""A topic whose first records were gone before either layer came: no window that may lack them is sealed by itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import oracle
import pytest
import world as worlds
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from world import MINUTE, T0, World

from tally.base.duration import from_millis, iso, millis, to_millis
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.control import beginnings, incidents, seals
from tally.control.store import store
from tally.control.tables import beginnings as kept
from tally.jobs.batch import batch
from tally.jobs.reconcile import reconcile as reconciled
from tally.lake import delta
from tally.sources import beginning

GONE = 12  # records of each partition that retention ate


def eat(broker: str, topics: list[str], upto: dict[int, int]) -> None:
    """Delete the first records of each partition, as retention does."""
    admin = AdminClient({"bootstrap.servers": broker})
    wanted = [TopicPartition(topic, partition, to) for topic in topics for partition, to in upto.items()]
    for done in admin.delete_records(wanted).values():
        assert done.result(15).low_watermark > 0


def tally(*words: str) -> tuple[int, Any]:
    """A command line as a person types it, and the document that it prints."""
    program = "import sys; from tally.cli import app; sys.exit(app.run(sys.argv[1:]))"
    ran = subprocess.run([sys.executable, "-c", program, *words, "--json"], capture_output=True, text=True, timeout=400)
    return ran.returncode, json.loads(ran.stdout)


def served(name: str) -> list[dict[str, Any]]:
    code, rows = tally("read", name)
    assert code == 0
    return list(rows)


def start_of(row: dict[str, Any]) -> int:
    return to_millis(datetime.fromisoformat(row["window_start"]))


@pytest.fixture(
    scope="module", params=["tumbling", *(pytest.param(one, marks=pytest.mark.long) for one in ("session", "join"))]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cut(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[World]:
    """Half an hour on CreateTime topics, its first records eaten; both layers; then as much again, and a flush."""
    with pytest.MonkeyPatch.context() as patch:
        world = worlds.make(tmp_path_factory.mktemp("begin"), f"begin.{name}.", broker, patch, [name])
        records = worlds.story(17, 240, world.prefix)
        early = [record for record in records if record.broker_time < T0 + 30 * MINUTE]
        world.produce(early)
        eat(broker, world.topics(name), {0: GONE, 1: GONE})
        world.stream()
        world.batch(name)
        world.produce([record for record in records if record not in early] + worlds.flush(world.prefix))
        world.stream()
        world.batch(name)
        yield world


def test_what_may_lack_a_lost_record_is_partial_and_the_rest_is_sealed_and_true(cut: World, name: str) -> None:
    done = reconciled(name, None, None).as_json()
    assert done["verdict"] == "reconciled" and done["partial"] > 5 and done["sealed"] > 5
    begun = beginnings.of(cut.pipeline(name))
    # By the newest record of the first ingest and the skew; sessions a gap later, a join by its second topic's reach.
    newest = max(e.broker_time for events in cut.truth(name) for e in events if e.broker_time < T0 + 30 * MINUTE)
    later = {"tumbling": 0, "session": 2 * MINUTE, "join": worlds.REACH}[name]
    assert begun.at is not None and 0 <= begun.at - (newest + 5 * MINUTE + later) < 4 * MINUTE
    states = {seal.slot_start: seal.state for seal in seals.read(name, cut.pipeline(name).version)}
    assert {state for slot, state in states.items() if slot < begun.at} == {"partial"}
    assert {state for slot, state in states.items() if slot >= begun.at} == {"sealed"}
    assert sealed_is_true(cut, name, served(name)) > 5
    assert {row["state"] for row in served(name) if start_of(row) < begun.at} == {"partial"}
    assert reconciled(name, None, None).compared.windows == 0, "what is partial is not compared again and again"
    assert seals.sealed_to(name, cut.pipeline(name).version) == max(states) + millis(cut.pipeline(name).window.step)
    assert [row.cause for row in incidents.opened(name)] == []


def test_a_new_control_store_knows_the_beginning_again(cut: World, name: str) -> None:
    before = beginnings.of(cut.pipeline(name))
    with store().begin() as connection:
        connection.execute(kept.delete())
    assert beginnings.of(cut.pipeline(name)).at is None
    cut.batch(name)
    assert beginnings.of(cut.pipeline(name)) == before
    for topic in cut.topics(name):
        newest = delta.newest(settings().table("archive", topic), "ingest")
        assert newest is not None and newest.words["seq"] > 0
        assert {found["first"] for found in newest.words["beginning"]["partitions"].values()} == {GONE}


def test_a_plan_says_that_records_are_gone_up_to_the_beginning(cut: World, name: str) -> None:
    begins = beginnings.of(cut.pipeline(name)).at
    assert begins is not None
    step = millis(cut.pipeline(name).window.step)
    for since, code in ((begins - step, 1), (begins, 0)):
        words = ("plan", name, "--from", iso(from_millis(since)), "--to", iso(from_millis(begins + step)))
        assert tally(*words)[0] == code


def test_from_where_a_person_says_the_numbers_begin_windows_are_sealed(cut: World, name: str) -> None:
    # A person who knows what was eaten: nothing newer than the events of the first records.
    gone = [event.time for events in cut.truth(name) for event in events if event.offset < GONE]
    at = max(gone) + 8 * MINUTE
    code, found = tally("begin", name, "--at", iso(from_millis(at)), "--why", "looked it up")
    assert code == 0 and found["said"]["why"] == "looked it up"
    assert {(one["topic"], *one["offsets"]) for one in found["may_lack"]} == {(t, 0, GONE) for t in cut.topics(name)}
    assert incidents.history(name)[-1].done.endswith("looked it up") and not incidents.opened(name)
    before = sealed_is_true(cut, name, served(name))
    done = reconciled(name, None, None).as_json()
    assert done["verdict"] == "reconciled" and done["sealed"] > 0
    rows = served(name)
    assert sealed_is_true(cut, name, rows) > before
    first = beginnings.of(cut.pipeline(name)).at
    assert first is not None
    assert {row["state"] for row in rows if start_of(row) < first} == {"partial"}
    assert {row["state"] for row in rows if first <= start_of(row) < T0 + 60 * MINUTE} == {"sealed"}
    whole = ("plan", name, "--from", iso(from_millis(first)), "--to", iso(from_millis(first + 20 * MINUTE)))
    assert tally(*whole)[0] == 0


def sealed_is_true(world: World, name: str, rows: list[dict[str, Any]]) -> int:
    """How many rows are sealed; each is what all events give, those that were eaten too."""
    truth = oracle.batch_rows(worlds.shape_of(name), world.truth(name))
    key = world.pipeline(name).key[0]
    sealed = {
        (start_of(row), to_millis(datetime.fromisoformat(row["window_end"])), row[key]): (row["n"], row["total"])
        for row in rows
        if row["state"] == "sealed"
    }
    slots = {seal.slot_start for seal in seals.read(name, world.pipeline(name).version) if seal.state == "sealed"}
    assert sealed == {place: row for place, row in truth.items() if world.pipeline(name).slot(place[0]) in slots}
    return len(sealed)


@pytest.mark.long
def test_windows_that_only_a_stream_read_whole_are_not_sealed_either(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "tumbling"
    world = worlds.make(tmp_path, "unarchived.", broker, monkeypatch, [name])
    records = worlds.story(29, 160, world.prefix)
    early = [record for record in records if record.broker_time < T0 + 20 * MINUTE]
    world.produce(early)
    world.stream()
    eat(broker, world.topics(name), {0: GONE, 1: GONE})
    world.batch(name)
    world.produce([record for record in records if record not in early] + worlds.flush(world.prefix))
    world.stream()
    world.batch(name)
    reconciled(name, None, None)
    begun = beginnings.of(world.pipeline(name)).at
    assert begun is not None
    states = {seal.slot_start: seal.state for seal in seals.read(name, world.pipeline(name).version)}
    # Where the archive lacks what the stream counted, the difference has no cause: those are held as ever.
    assert {state for slot, state in states.items() if slot < begun} == {"partial", "held"}
    assert {state for slot, state in states.items() if slot >= begun} == {"sealed"}
    assert sealed_is_true(world, name, served(name)) > 5
    assert beginning.NEVER_ARCHIVED in {row.cause for row in incidents.opened(name)}


LIVE = """
from tally import topic

left = topic("{prefix}left", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="1 second", partitions=1)
right = topic("{prefix}right", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="1 second", partitions=1)
"""
SINGLE = """
from pyspark.sql import functions as F
from topics import left
from tally import pipeline, session, tumbling

@pipeline(reads=left, window={window}, key="id")
def {name}(left):
    return left.groupBy("window", "id").agg(F.count("*").alias("n"))
"""
JOIN = """
from pyspark.sql import functions as F
from topics import left, right
from tally import pipeline, tumbling

@pipeline(reads=[left, right], window=tumbling("1 second"), key="id", reach="1 second")
def live_join(left, right):
    on = F.expr("l.id = r.id AND r.at >= l.at AND r.at < l.at + INTERVAL 1 SECOND")
    pairs = left.alias("l").join(right.alias("r"), on).select("window", F.col("l.id").alias("id"), "l.at")
    return pairs.groupBy("window", "id").agg(F.count("*").alias("n"))
"""


def test_where_the_broker_stamps_records_the_numbers_begin_a_skew_after_the_first(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    name = f"live_{name}"
    live_catalogue(tmp_path, broker, monkeypatch, name)
    topics = sorted(catalogue().topics)
    lost = send(broker, topics, 3, pause=0.2)
    eat(broker, topics, {0: 3})
    send(broker, topics, 1, pause=2.5)
    send(broker, topics, 6, pause=1.0)
    time.sleep(3.5)
    send(broker, topics, 2, pause=3.5)  # closes all that was sent before
    stream(name)
    pipeline = catalogue().pipeline(name)
    batch(name, iso(from_millis(lost[0] - 60_000)), iso(from_millis(lost[0] + 600_000)))
    done = reconciled(name, None, None).as_json()
    begun = beginnings.of(pipeline)
    assert begun.at is not None and begun.whole_from is not None and done["partial"] > 0 and done["sealed"] > 0
    assert all(missed.append_time for missed in begun.missed)
    first = min(missed.broker_time or 0 for missed in begun.missed)
    assert first <= begun.at - 1000 <= first + 5000 and max(lost) < begun.at
    states = {start_of(row): row["state"] for row in served(name)}
    assert {state for start, state in states.items() if start < begun.at} == {"partial"}
    assert "sealed" in {state for start, state in states.items() if start >= begun.at} <= {"sealed", "open", "closed"}
    code, found = tally("begin", name, "--at", iso(from_millis(begun.at - 2000)))
    assert code == 0 and {one["proven"] for one in found["may_lack"]} == {True}
    assert reconciled(name, None, None).verdict.word == "reconciled"
    states = {start_of(row): row["state"] for row in served(name)}
    assert {state for start, state in states.items() if start < begun.at - 2000} <= {"partial"}
    assert "partial" not in {state for start, state in states.items() if start >= begun.at - 1000}


def live_catalogue(folder: Path, broker: str, patch: pytest.MonkeyPatch, name: str) -> None:
    """A pipeline of one-second windows over topics that the broker stamps."""
    (folder / "catalogue" / "pipelines").mkdir(parents=True)
    (folder / "catalogue" / "topics.py").write_text(LIVE.format(prefix=f"live{time.time_ns()}."))
    windows = {"live_tumbling": 'tumbling("1 second")', "live_session": 'session("1 second")'}
    text = SINGLE.format(name=name, window=windows[name]) if name in windows else JOIN
    (folder / "catalogue" / "pipelines" / f"{name}.py").write_text(text)
    patch.setenv("TALLY_CATALOG", str(folder / "catalogue"))
    patch.setenv("TALLY_HOME", str(folder / "home"))
    patch.setenv("TALLY_KAFKA", broker)
    patch.setenv("TALLY_SKEW", "1 second")
    config = {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(topic, 1, 1, config=config) for topic in catalogue().topics]
    admin = AdminClient({"bootstrap.servers": broker})
    for done in admin.create_topics(wanted).values():
        done.result(15)


def send(broker: str, topics: list[str], count: int, *, pause: float) -> list[int]:
    """So many events to each topic, as they happen; their times."""
    producer, times = Producer({"bootstrap.servers": broker, "enable.idempotence": True}), []
    for at in range(count):
        times.append(time.time_ns() // 1_000_000)
        body = json.dumps({"id": at % 2, "at": iso(from_millis(times[-1]))}).encode()
        for topic in topics:
            producer.produce(topic, body, partition=0)
        assert producer.flush(15) == 0
        time.sleep(pause)
    return times


def stream(name: str) -> None:
    from tally.speed.driver import Driver

    assert Driver([name], until_caught_up=True).run() == []
