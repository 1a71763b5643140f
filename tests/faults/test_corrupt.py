"""A harmed stream heals by itself, or by the one command that its refusal names; then it is what the oracle says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import harmed
import oracle
import pytest
import world as worlds
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from harmed import HOWS, NAME, REFUSED, refusal
from pyspark.sql import SparkSession
from test_kill import killed
from test_negative_controls import reconcile, states, told
from world import MINUTE, T0, World

from tally.base.errors import AnswerIsNo, DataLost
from tally.base.settings import settings
from tally.cli import app
from tally.control import incidents, streams
from tally.host import lock
from tally.sources import kafka
from tally.speed.start import agreement, stored_state
from tally.speed.upkeep import ledger_table

HOLDER = """
import pathlib, sys
from tally.host import lock
held = lock.hold(pathlib.Path(sys.argv[1]))
print("held", flush=True)
input()
"""
SHORT = {"the newest commit of the table is empty"}
long = pytest.mark.long


@pytest.fixture(scope="module", params=worlds.DEFAULT_FIRST)
def stopped(
    request: pytest.FixtureRequest, spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        path = request.param
        yield harmed.make(tmp_path_factory.mktemp("corrupt"), f"corrupt.{path}.", broker, patch, path)


@pytest.fixture
def copy(stopped: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return harmed.copied(stopped, tmp_path, monkeypatch)


def more(world: World) -> None:
    """Some more events, later than all others, so that a micro-batch has to load the state."""
    at = sum(len(events) for events in world.events.values())
    body, event = worlds.order(10_000 + at, T0 + (120 + at) * MINUTE, 1, at % 4, 2.5)
    world.produce([worlds.Record(f"{world.prefix}orders_u", 0, event["time"], body, event)])


def rebuilt(*words: str) -> None:
    assert app.run(["rebuild", NAME, *words]) == 0


def drained(world: World) -> None:
    """Go on, with new events too, and be what the oracle says."""
    world.stream()
    world.check_stream(NAME)
    more(world)
    world.stream()
    world.check_stream(NAME)


@pytest.mark.parametrize("case", [pytest.param(c, marks=() if c in SHORT else (long,)) for c in REFUSED])
def test_what_is_refused_is_healed_by_a_rebuild(copy: World, case: str) -> None:
    act, name, _ = REFUSED[case]
    act(copy)
    failed = refusal()
    assert isinstance(failed, AnswerIsNo) and failed.field == name
    assert f"tally rebuild {NAME}" in (failed.cure or "")
    assert incidents.opened(NAME)
    rebuilt("--why", "a test")
    assert incidents.opened(NAME) == []
    drained(copy)


@pytest.mark.parametrize("stopped", ["own"], indirect=True)  # the other path has no state of Spark's
@pytest.mark.parametrize(
    "how", [pytest.param(h, marks=() if h == "truncated" else (long,)) for h in (*HOWS, "missing")]
)
def test_a_state_that_spark_cannot_load_is_refused_with_its_cure(copy: World, how: str) -> None:
    harmed.harm_state(copy, how)
    more(copy)
    failed = refusal()
    assert isinstance(failed, AnswerIsNo) and failed.field == "state" and "CANNOT_LOAD_STATE_STORE" in failed.message
    assert f"tally rebuild {NAME}" in (failed.cure or "")
    rebuilt()
    drained(copy)


@pytest.mark.parametrize("how", [pytest.param(h, marks=() if h == "empty" else (long,)) for h in HOWS])
def test_what_a_power_cut_left_half_written_heals_by_itself(copy: World, how: str) -> None:
    number = harmed.newest(copy).batch
    harmed.harm(harmed.root(copy) / "offsets" / str(number + 1), how, like=harmed.plan(copy))
    harmed.harm(harmed.entry(copy, ahead=1), how, like=harmed.entry(copy))
    harmed.harm(harmed.done(copy), how)
    drained(copy)
    assert {path.name for path in (harmed.root(copy) / "aside").iterdir()} >= {
        f"offsets-{number + 1}",
        f"commits-{number}",
    }


def test_delta_itself_loses_the_rows_of_an_empty_commit_in_silence(copy: World, spark: SparkSession) -> None:
    """Why a start looks at the log itself: the check is only worth its time while Delta does this."""
    batch = max(ledger_table.applied(copy.pipeline(NAME)), key=lambda b: b.rows)
    where = Path(copy.path("speed", NAME))
    before = spark.read.format("delta").load(str(where)).count()
    where.rename(where.with_name("looked-at"))  # Delta knows the other path from memory
    where = where.with_name("looked-at")
    (where / "_delta_log" / f"{batch.delta_version:020d}.json").write_bytes(b"")
    assert spark.read.format("delta").load(str(where)).count() == before - batch.rows < before


def test_a_rebuild_waits_for_no_writer_and_says_how_to_stop_it(copy: World, capsys: pytest.CaptureFixture[str]) -> None:
    path = lock.table_path("speed", NAME, copy.pipeline(NAME).version)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        before = harmed.generations(copy)
        assert app.run(["rebuild", NAME]) == 1
        said = capsys.readouterr().err
        assert f"process {other.pid}" in said and f"tally stop {NAME}" in said
        assert harmed.generations(copy) == before
    finally:
        other.communicate("\n", timeout=30)


@long
@pytest.mark.parametrize(
    "failpoint", ["rebuild.before_folder", "rebuild.after_folder", "rebuild.before_emptying", "rebuild.after_emptying"]
)
def test_a_rebuild_that_dies_is_done_again(copy: World, failpoint: str) -> None:
    if failpoint.endswith("folder"):
        killed(failpoint, "rebuild", NAME)
        assert stored_state.read(copy.pipeline(NAME)).fresh == failpoint.startswith("rebuild.after")
    else:
        rebuilt()
        killed(failpoint, "stream", NAME, "--until-caught-up")
        if failpoint.endswith("after_emptying"):
            assert copy.table("speed", NAME) == {}
            copy.batch(NAME)
            with pytest.raises(AnswerIsNo, match="is being rebuilt: generation 2"):
                copy.compare(NAME)
    drained(copy)


@pytest.fixture(params=worlds.DEFAULT_FIRST)
def alone(request: pytest.FixtureRequest, spark: SparkSession, broker: str, tmp_path: Path) -> Iterator[World]:
    """A stream on topics that nobody else reads, which a test may delete."""
    with pytest.MonkeyPatch.context() as patch:
        name = request.node.name.split("[")[0][-20:]
        yield harmed.make(tmp_path, f"{name}{abs(hash(request.node.name)) % 997}.", broker, patch, request.param)


def admin(world: World) -> AdminClient:
    return AdminClient({"bootstrap.servers": world.broker})


def recreate(world: World, count: int) -> World:
    """The topic made anew with other events; a world that knows only these."""
    (topic,) = world.topics(NAME)
    admin(world).delete_topics([topic])[topic].result(15)
    made = NewTopic(topic, worlds.PARTITIONS, 1, config={"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
    while admin(world).create_topics([made])[topic].exception(15) is not None:
        pass  # the old one is still being deleted
    kept = {place: end for place, end in world.ends.items() if place[0] != topic}
    new = replace(world, ends=kept, events={}, refused={})
    new.produce([r for r in worlds.story(9, count, world.prefix, late=0.05) if r.topic == topic])
    return new


@long
@pytest.mark.parametrize("count", [40, 400])
def test_a_recreated_topic_is_refused_and_a_rebuild_takes_it(alone: World, count: int) -> None:
    new = recreate(alone, count)
    failed = refusal()
    assert isinstance(failed, DataLost) and "recreated" in failed.message
    rebuilt()
    drained(new)


@long
def test_a_recreated_topic_that_was_archived_is_not_taken(alone: World, capsys: pytest.CaptureFixture[str]) -> None:
    alone.batch(NAME)
    recreate(alone, 40)
    before = harmed.generations(alone)
    assert app.run(["rebuild", NAME]) == 1
    said = capsys.readouterr().err
    assert "its archive would take its records for the old ones" in said and "give the topic a new name" in said
    assert harmed.generations(alone) == before
    assert isinstance(refusal(), DataLost), "and the stream stays refused"


def eaten(world: World, offsets: dict[int, int]) -> None:
    """Have retention take all before these offsets."""
    (topic,) = world.topics(NAME)
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    for gone in admin(world).delete_records(wanted).values():
        gone.result(15)


@long
def test_offsets_that_retention_ate_are_named_and_a_rebuild_explains_them(alone: World) -> None:
    (topic,) = alone.topics(NAME)
    reached = harmed.newest(alone).ends(topic)
    alone.produce([r for r in worlds.story(21, 60, alone.prefix, late=0.05) if r.topic == topic] + far(alone))
    alone.batch(NAME)
    eaten(alone, {0: reached[0] + 7})
    failed = refusal()
    assert isinstance(failed, DataLost)
    assert f"topic {topic}, partition 0, offsets [{reached[0]}, {reached[0] + 7}) were eaten" in failed.message
    assert f"tally rebuild {NAME}" in (failed.cure or "")
    rebuilt()
    alone.stream()
    assert harmed.newest(alone).generation == 2
    found = reconcile(alone)
    missed = [event for event in alone.truth(NAME)[0] if event.partition == 0 and event.offset < reached[0] + 7]
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
    assert 0 < found["events"]["skipped"] <= len(missed)
    assert alone.table("batch", NAME) == oracle.batch_rows(worlds.shape_of(NAME), alone.truth(NAME))


def far(world: World) -> list[worlds.Record]:
    (topic,) = world.topics(NAME)
    return [record for record in worlds.flush(world.prefix) if record.topic == topic]


@long
def test_sealed_windows_stay_sealed_over_a_rebuild_and_an_archive_that_lost_some_is_not_believed(
    alone: World, spark: SparkSession
) -> None:
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    (topic,) = alone.topics(NAME)
    alone.produce(far(alone))
    alone.stream()
    alone.batch(NAME)
    assert reconcile(alone)["verdict"] == "reconciled"
    sealed, rows = states(alone), served(alone)
    eaten(alone, {p: end - 3 for p, end in kafka.end_offsets(topic).items()})
    rebuilt()
    alone.stream()
    assert states(alone) == sealed and set(sealed.values()) == {"sealed"}
    assert {place: row for place, row in served(alone).items() if place[0] in sealed} == {
        place: row for place, row in rows.items() if place[0] in sealed
    }
    alone.batch(NAME)
    found = reconcile(alone)
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled") and found["events"]["skipped"] > 0
    assert states(alone) == sealed, "restated from the same events they seal again"

    table = DeltaTable.forPath(spark, settings().table("archive", topic))
    lost = table.toDF().where(F.unix_millis("at") < T0 + 10 * MINUTE).orderBy("_partition", "_offset").first()
    assert lost is not None
    before = table.history(1).collect()[0]["version"]
    table.delete((F.col("_partition") == lost["_partition"]) & (F.col("_offset") == lost["_offset"]))
    slot = alone.pipeline(NAME).slot(int(lost["at"].timestamp() * 1000))
    for _ in range(2):  # what was held is not believed the second time either
        alone.batch(NAME)
        found = reconcile(alone)
        assert found["verdict"] == "held" and found["unexplained"] > 0
        assert {start for start, state in states(alone).items() if state == "held"} == {slot}
    table.restoreToVersion(before)
    alone.batch(NAME)
    assert reconcile(alone)["verdict"] == "reconciled", "the archive is whole again"


def served(world: World) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    from tally.serving.read import read

    rows = read(world.pipeline(NAME)).to_pylist()
    return {
        (int(row["window_start"].timestamp() * 1000), row["shop"]): (row["n"], row["total"], row["state"])
        for row in rows
    }


@long
@pytest.mark.parametrize("alone", ["own"], indirect=True)  # of the other, nobody outside knows what waited when
def test_partitions_that_are_added_while_the_stream_runs_are_read(alone: World) -> None:
    import os
    import signal
    import time

    (topic,) = alone.topics(NAME)
    running = subprocess.Popen(
        [sys.executable, "-c", "from tally.cli import main; main()", "stream", NAME],
        env={**os.environ, "TALLY_STREAM_MEMORY": "512m"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while (streams.stream(NAME) or {}).get("state") != "running" and time.monotonic() < deadline:
            more(alone)
            time.sleep(1)
        admin(alone).create_partitions([NewPartitions(topic, 6)])[topic].result(15)
        time.sleep(2)
        for record in worlds.story(31, 60, alone.prefix, late=0.05):
            if record.topic == topic:
                alone.produce([replace(record, partition=len(alone.truth(NAME)[0]) % 6)])
        wanted = {partition: end for (name, partition), end in alone.ends.items() if name == topic}
        while (
            harmed.newest(alone).ends(topic) != {**dict.fromkeys(range(6), 0), **wanted} and time.monotonic() < deadline
        ):
            time.sleep(0.5)
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)
    assert set(harmed.newest(alone).ends(topic)) == set(range(6))
    assert [one for one in agreement.findings(stored_state.read(alone.pipeline(NAME))) if not one.good] == []
    alone.check_stream(NAME)
    alone.batch(NAME)
    found = reconcile(alone)
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
    batch, stream, causes = told(alone)
    assert (alone.table("batch", NAME), alone.table("speed", NAME)) == (batch, stream) and found["events"] == causes
