"""Pipelines that share their topic's stream: the same promise, by a watermark of each partition."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import oracle
import pytest
import sqlalchemy as sa
import world as worlds
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from test_negative_controls import reconcile, states
from world import SECOND, Record, World

from tally.base.settings import settings
from tally.control import ledger, streams, tables
from tally.control.leases import name_of_inbox
from tally.control.shares import stream_of
from tally.control.store import store
from tally.host.waiting import until
from tally.sources.records.valid import Valid
from tally.speed import checkpoint
from tally.speed.driver import Driver
from tally.speed.shared import events
from tally.speed.shared.inbox import Inbox
from tally.speed.shared.member import Member
from tally.speed.shared.missed import Missed
from tally.speed.shared.reading import Reading
from tally.speed.shared.topic_stream import FEW
from tally.speed.upkeep import ledger_table
from tally.speed.writer import Writer

PLAIN, WITH_IDS = ["tumbling_p", "hopping_p"], ["tumbling_u", "hopping_u"]
NAMES = [*PLAIN, *WITH_IDS]
VALID_OF = Valid.of
# Ends that tell most: the inbox has a micro-batch and no table has it; one table has it, and the other has not.
ENDS = {"shared.after_taken:3", "shared.after_member:3"}
ENDS_LONG = {"shared.begin:3", "shared.before_taken:3", "shared.end:3", "shared.before_inbox_fold", "speed.after_fold"}


@pytest.fixture
def shared(
    spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setenv("TALLY_SHARED", "true")
    folder = tmp_path_factory.mktemp("shared")
    return worlds.make(folder, f"{folder.name}.", broker, monkeypatch, NAMES)


@pytest.fixture(scope="module")
def produced(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A short story, told at once, of which nothing was read yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_SHARED", "true")
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "14")
        made = worlds.make(tmp_path_factory.mktemp("sharing"), "sharing.", broker, patch, NAMES)
        made.produce(worlds.story(8, 80, made.prefix, late=0.2) + worlds.flush(made.prefix))
        yield made


@pytest.fixture
def begun(produced: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same topics and catalogue in a home where nothing was done yet."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    produced.drained[:] = [dict(produced.ends)]
    return produced


def with_copies(records: list[Record], prefix: str) -> list[Record]:
    """The records with more copies of ids: in the other partition, and nearer and further in time than the lateness."""
    chance, found = random.Random(7), []
    for record in records:
        found.append(record)
        if record.topic == f"{prefix}orders_u" and record.event and chance.random() < 0.2:
            event = record.event
            time = event["time"] + chance.choice([-300, -120, -110, 0, 110, 120, 121, 300]) * SECOND
            body, event = worlds.order(event["id"], time, event["ref"], event["key"], event["amount"] + 1)
            partition = chance.randrange(worlds.PARTITIONS)
            found.append(Record(record.topic, partition, record.broker_time, body, event))
    return found


def seen_by(ways: list[str], way: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and word of it."""

    def told_of(*given: Any) -> Any:
        found = act(*given)
        ways.extend([way] if found is not None else [])
        return found

    return told_of


def check(world: World, names: Sequence[str] = NAMES) -> None:
    """Each pipeline's table is what the oracle says, and holds each offset's micro-batch in one commit."""
    for name in names:
        out, entries = world.told(name), world.ledger(name)
        assert [batch.batch for batch in entries] == list(range(len(entries)))
        assert [batch.late_watermark for batch in entries] == out.watermarks
        assert world.table("speed", name) == out.rows
        assert commits(world, name) == len(entries)
    for pair in (PLAIN, WITH_IDS):
        one, other = (world.ledger(name) if name in names else [] for name in pair)
        assert [(b.batch, b.ranges, b.watermark) for b in one] == [(b.batch, b.ranges, b.watermark) for b in other]


def check_reconciles(world: World) -> None:
    for name in NAMES:
        shape, out = worlds.shape_of(name), world.told(name)
        assert world.batch(name) == oracle.batch_rows(shape, world.truth(name))
        found = reconcile(world, name)
        assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
        assert found["events"] == dict(oracle.causes(shape, world.truth(name), out))
        assert found["events"]["late"] > 0, "a story without late events proves nothing"
        assert name in PLAIN or found["events"]["duplicate"] > 0, "nor does one without copies"
        assert found["conservation"]["balanced"]
        assert set(states(world, name).values()) == {"sealed"}


def read_by(way: str, patch: pytest.MonkeyPatch) -> None:
    """Have micro-batches read one way: in the driver's process, in one pass of Spark's workers, by Spark's plans."""
    patch.setattr(events, "SMALL", 20_000 if way == "here" else 0)
    patch.setattr(Valid, "of", classmethod(lambda cls, topic: None if way == "Spark" else VALID_OF(topic)))


def test_both_layers_are_what_the_oracle_says_and_reconcile(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A story in three rounds, each under a new driver, in micro-batches of another size, and read another way."""
    records = with_copies(worlds.story(5, 160, shared.prefix, late=0.2), shared.prefix)
    third, ways = len(records) // 3, list[str]()
    for name, way in (("judged_here", "here"), ("read_in_one_pass", "one pass"), ("valid", "Spark")):
        monkeypatch.setattr(Reading, name, seen_by(ways, way, getattr(Reading, name)))
    for at, (size, way) in enumerate(((37, "here"), (90, "one pass"), (60, "Spark"))):
        read_by(way, monkeypatch)
        ways.clear()
        monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", str(size))
        shared.produce(records[at * third : (at + 1) * third if at < 2 else None])
        shared.stream()
        assert set(ways) == {way}
    read_by("here", monkeypatch)
    shared.produce(worlds.flush(shared.prefix))
    shared.stream()
    for name in NAMES:
        root = checkpoint.root(name, shared.pipeline(name).version, 1)
        assert root == checkpoint.topic_root(shared.topics(name)[0])
    check(shared)
    check_reconciles(shared)


@pytest.mark.parametrize(
    "failpoint", [*sorted(ENDS), *(pytest.param(name, marks=pytest.mark.long) for name in sorted(ENDS_LONG))]
)
def test_a_driver_that_dies_goes_on_where_it_was(begun: World, failpoint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from tally.cli import main; main()", "stream", "--until-caught-up"],
        env={
            **os.environ,
            "TALLY_FAILPOINT": failpoint,
            "TALLY_STREAM_MEMORY": "512m",
            "TALLY_FOLD_AFTER_BATCHES": "3",
            # A day is folded once it lies in many files.
            "TALLY_MAX_OFFSETS_PER_TRIGGER": "6" if "after_fold" in failpoint else "14",
        },
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == -signal.SIGKILL, f"{failpoint} was not passed: {done.stdout}{done.stderr}"
    begun.stream()
    check(begun)


@pytest.mark.parametrize(
    "pair", [pytest.param(PLAIN, marks=pytest.mark.long, id="without ids"), pytest.param(WITH_IDS, id="with ids")]
)
def test_one_that_joins_later_takes_first_what_it_missed_as_it_was_judged(begun: World, pair: list[str]) -> None:
    first, second = pair
    begun.stream(first)
    assert begun.ledger(second) == []
    begun.stream(*pair)
    check(begun, pair)


@pytest.mark.parametrize("pair", [pytest.param(PLAIN, id="without ids"), pytest.param(WITH_IDS, id="with ids")])
def test_one_that_missed_much_takes_many_micro_batches_at_a_time(
    begun: World, monkeypatch: pytest.MonkeyPatch, pair: list[str]
) -> None:
    """Each event is late, or a copy, as it was for the others; and one commit holds what is taken together."""
    first, second = pair
    begun.stream(first)
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "60")
    begun.stream(*pair)
    one, other = (begun.ledger(name) for name in pair)
    assert [(b.batch, b.ranges, b.late_watermark) for b in one] == [
        (b.batch, b.ranges, b.late_watermark) for b in other
    ]
    out = begun.told(second)
    assert out.watermarks == [batch.late_watermark for batch in other] and out.late
    assert begun.table("speed", second) == out.rows
    assert 1 < commits(begun, second) < commits(begun, first) / 3


def test_one_that_joins_when_its_past_is_gone_begins_with_what_kafka_holds(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has the past, and each event that the stream never saw is accounted for."""
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "20")
    first, second = PLAIN
    shared.produce(worlds.story(13, 80, shared.prefix, late=0.1) + worlds.flush(shared.prefix))
    shared.stream(first)
    shared.batch(second)
    entries, (topic,) = shared.ledger(first), shared.topics(second)
    middle = entries[len(entries) // 2]
    gone = middle.ranges[topic][0][0] + 1  # one record of it
    admin = AdminClient({"bootstrap.servers": settings().kafka})
    next(iter(admin.delete_records([TopicPartition(topic, 0, gone)]).values())).result()
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "1000")
    shared.stream(first, second)
    assert [batch.batch for batch in shared.ledger(second)] == list(range(middle.batch + 1, len(entries)))
    found = reconcile(shared, second)
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
    assert found["events"]["skipped"] > 0 and found["conservation"]["balanced"]


def commits(world: World, name: str) -> int:
    """How many commits of its table hold micro-batches."""
    history = DeltaTable(world.path("speed", name)).history()
    return sum("micro-batch" in commit.get("userMetadata", "") for commit in history)


def test_one_that_was_away_meets_the_ids_that_were_there_before_it_came_back(
    shared: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "40")
    records, (first, second) = with_copies(worlds.story(9, 120, shared.prefix, late=0.2), shared.prefix), WITH_IDS
    third = len(records) // 3
    for at, names in enumerate((WITH_IDS, [first], WITH_IDS)):
        shared.produce(records[at * third : (at + 1) * third if at < 2 else None])
        shared.stream(*names)
        assert (len(shared.ledger(second)) == len(shared.ledger(first))) is (at != 1)
    check(shared, WITH_IDS)


def test_one_that_misses_much_follows_while_the_others_go_on(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that nobody told to end: no micro-batch of one pipeline waits for what another one missed."""
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "8")
    monkeypatch.setenv("TALLY_TRIGGER_SECONDS", "0.2")
    records, (first, second) = with_copies(worlds.story(11, 100, shared.prefix, late=0.2), shared.prefix), WITH_IDS
    records = [record for record in records if record.topic == f"{shared.prefix}orders_u"]
    shared.produce(records[:-40])
    shared.stream(first)
    missed = len(shared.ledger(first))
    assert missed > 3 * FEW, "a story that is read at once proves nothing"
    shared.produce(records[-40:] + worlds.flush(shared.prefix))
    shared.drained.append(dict(shared.ends))
    driver, catch_up, went_on = Driver([first, second]), Missed.catch_up, list[bool]()

    def slow(self: Missed, member: Member) -> None:
        if member.pipeline.name == second and not went_on:
            went_on.append(until(lambda: len(shared.ledger(first)) > missed + 1, seconds=120, every=0.2))
        catch_up(self, member)

    def end() -> None:
        until(lambda: all(ends_of(shared, name) == ends(shared) for name in WITH_IDS), seconds=300, every=0.5)
        driver.stopping = True

    monkeypatch.setattr(Missed, "catch_up", slow)
    ending = threading.Thread(target=end)
    ending.start()
    assert driver.run() == []
    ending.join()
    assert went_on == [True]
    check(shared, WITH_IDS)


def ends_of(world: World, name: str) -> dict[int, int]:
    batches = world.ledger(name)
    return batches[-1].ends(*world.topics(name)) if batches else {}


def ends(world: World) -> dict[int, int]:
    """How far the topic with ids goes."""
    (topic,) = world.topics(WITH_IDS[0])
    return {partition: end for (of, partition), end in world.ends.items() if of == topic}


def test_one_whose_missing_micro_batches_nobody_knows_is_refused(begun: World) -> None:
    """Rather than go on with a hole: a control store that was made anew has the newest one only."""
    first, second = PLAIN
    begun.stream(first)
    with store().begin() as connection:
        connection.execute(
            sa.delete(tables.ledger).where(tables.ledger.c.version == "shared", tables.ledger.c.batch < 2)
        )
    (failed,) = Driver([second], until_caught_up=True).run()
    assert failed.pipeline == second and failed.field == "ledger" and "tally rebuild" in (failed.cure or "")
    assert begun.ledger(second) == []


def test_the_ledger_has_each_micro_batch_once_and_is_made_again_from_what_the_tables_tell(begun: World) -> None:
    begun.stream(*PLAIN)
    before, count = [told_of(begun, name) for name in PLAIN], len(begun.ledger(PLAIN[0]))
    (topic,) = begun.topics(PLAIN[0])
    everywhere = [stream_of(topic), *((name, begun.pipeline(name).version) for name in PLAIN)]
    assert [len(ledger.after(*place, 0, -1)) for place in everywhere] == [count, 0, 0]
    with store().begin() as connection:
        for table in (tables.ledger, tables.shares):
            connection.execute(sa.delete(table))
    assert [ledger_table.repair(begun.pipeline(name)) for name in PLAIN] == [count, 0]
    assert [told_of(begun, name) for name in PLAIN] == before
    assert [ledger_table.repair(begun.pipeline(name)) for name in PLAIN] == [0, 0]
    begun.stream(*PLAIN)
    assert [told_of(begun, name) for name in PLAIN] == before


def told_of(world: World, name: str) -> list[tuple[object, ...]]:
    """What the ledger tells of a pipeline's micro-batches, and of all of them."""
    version, found = world.pipeline(name).version, world.ledger(name)
    newest = ledger.newest(name, version)
    assert found[-1] == newest and newest is not None and newest.delta_version > 0
    told = [(b.pipeline, b.version, b.generation, b.batch, b.ranges, b.late_watermark, b.watermark) for b in found]
    return [*told, (newest.delta_version, *ledger.applied(name, version))]


def test_what_goes_wrong_for_one_pipeline_holds_up_no_other(begun: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = PLAIN
    totals, times = Member.totals, []

    def fails(self: Member, *given: object) -> object:
        times.append(self.pipeline.name)
        if self.pipeline.name == second and times.count(second) == 3:
            raise ArithmeticError("a sum outgrew its type")
        return totals(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Member, "totals", fails)
    (failed,) = Driver(PLAIN, until_caught_up=True).run()
    assert failed.pipeline == second and "a sum outgrew its type" in str(failed)
    assert [len(begun.ledger(name)) for name in PLAIN] == [len(times) - 3, 2]
    assert (streams.stream(first) or {})["state"] == "stopped" and (streams.stream(second) or {})["state"] == "failed"
    monkeypatch.undo()
    monkeypatch.setenv("TALLY_HOME", str(settings().home))
    begun.stream(*PLAIN)
    check(begun, PLAIN)


def test_a_topic_is_read_by_one_driver_and_by_another_once_that_has_ended(
    begun: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two for pipelines of their own, who have no table in common."""
    first, second = PLAIN
    (topic,) = begun.topics(first)
    other, take, taken = Writer(), Inbox.take, list[int]()
    other.take(name_of_inbox(topic), lambda _: None)
    (refused,) = Driver([second], until_caught_up=True).run()
    assert refused.pipeline in (None, second) and f"table-inbox-{topic} is held by" in str(refused)
    other.release()

    def overtaken(self: Inbox, *given: object) -> None:
        """A driver of another machine takes the lease over, as this one stood still, in its third micro-batch."""
        taken.append(len(taken))
        if len(taken) == 3:
            theft = sa.update(tables.leases).where(tables.leases.c.name == name_of_inbox(topic))
            with store().begin() as connection:
                connection.execute(theft.values(epoch=tables.leases.c.epoch + 1))
        take(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Inbox, "take", overtaken)
    assert [error.pipeline for error in Driver(PLAIN, until_caught_up=True).run()] == PLAIN
    assert [len(begun.ledger(name)) for name in PLAIN] == [2, 2] and len(taken) == 3
    monkeypatch.setattr(Inbox, "take", take)
    begun.stream(*PLAIN)
    check(begun, PLAIN)


def test_a_stream_that_was_begun_keeps_its_way(begun: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the setting says later: totals of two ways in one table would not add up."""
    first, second = PLAIN
    begun.stream(first)
    monkeypatch.setenv("TALLY_SHARED", "false")
    begun.stream(first)
    assert checkpoint.shared_topic(own(begun, first)) == begun.topics(first)[0]
    begun.stream(second)
    monkeypatch.setenv("TALLY_SHARED", "true")
    begun.stream(second)
    assert checkpoint.shared_topic(own(begun, second)) is None


def own(world: World, name: str) -> str:
    return f"{settings().checkpoint_root}/{name}/{world.pipeline(name).version}/g1"
