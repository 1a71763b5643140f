"""A driver follows what people wish of its streams, one by one, and what failed under one is known to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import world as worlds
from pyspark.sql import SparkSession
from world import World

from tally.base.errors import AnswerIsNo, StreamFailed
from tally.control import incidents, streams
from tally.control.store import now_ms
from tally.host import driver_files, lock
from tally.speed import query as queries
from tally.speed import tries as trying
from tally.speed.driver import Driver
from tally.speed.stream_runner import StreamRunner
from tally.supervise import desired_state, status

PLAIN, OTHER = "tumbling_u", "hopping"
PREPARE = {"own": "prepare", "shared": "prepare_shared"}


@pytest.fixture(scope="module", params=worlds.DEFAULT_FIRST)
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, path: str) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_SHARED", worlds.PATHS[path])
        patch.setenv("TALLY_TRIGGER_SECONDS", "0.2")
        patch.setattr(trying, "FIRST_BACKOFF", 0.5)
        made = worlds.make(tmp_path_factory.mktemp("wishes"), f"wishes.{path}.", broker, patch, [PLAIN, OTHER])
        made.produce(worlds.story(5, 60, made.prefix))
        yield made


@pytest.fixture
def driver(world: World) -> Iterator[Driver]:
    made = Driver([])
    thread = threading.Thread(target=made.run, name="driver")
    thread.start()
    yield made
    made.stopping = True
    thread.join(60)
    assert not thread.is_alive()


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, [streams.stream(name) for name in (PLAIN, OTHER)]
        time.sleep(0.1)


def row(name: str) -> dict[str, object]:
    return streams.stream(name) or {}


def running(name: str) -> bool:
    return row(name).get("state") == "running"


def table_lock(world: World, name: str) -> bool:
    return lock.is_held(lock.table_path("speed", name, world.pipeline(name).version))


def test_wishes_are_followed_one_stream_at_a_time(world: World, driver: Driver) -> None:
    until(lambda: len(world.ledger(PLAIN)) and len(world.ledger(OTHER)))
    until(lambda: running(PLAIN) and running(OTHER))
    (one, other) = sorted(driver.runners, key=lambda runner: runner.pipeline.name != PLAIN)
    untouched = other.running

    desired_state.pause(PLAIN, by="ada", why="the broker moves")
    until(lambda: row(PLAIN)["state"] == "paused")
    found = status.diagnose(PLAIN)
    assert found.state == "paused" and "by ada" in found.reason and "the broker moves" in found.reason
    assert table_lock(world, PLAIN), "a paused stream keeps its table"

    desired_state.resume(PLAIN, by="ada", why="")
    until(lambda: running(PLAIN))
    first = one.running
    said = str(desired_state.restart(PLAIN, by="ada", why="")).lower()
    assert "begun anew" in said and "the other streams went on" in said
    until(lambda: one.running is not None and one.running is not first and one.running.active)

    granted = desired_state.stop(PLAIN, by="ada", why="the disk")
    assert "nobody writes its table" in str(granted)
    assert not table_lock(world, PLAIN)
    assert status.diagnose(PLAIN).state == "stopped"
    assert other.running is untouched and other.running.active, "the other stream ran on"

    before = len(world.ledger(PLAIN))
    world.produce(worlds.story(6, 20, world.prefix))
    desired_state.resume(PLAIN, by="ada", why="")
    until(lambda: len(world.ledger(PLAIN)) > before)
    offsets = [batch.ranges for batch in world.ledger(PLAIN)]
    for earlier, later in pairwise(offsets):
        for topic, parts in later.items():
            assert all(earlier[topic][p][1] == start for p, (start, _) in parts.items()), "it went on where it stopped"


def test_a_driver_with_every_stream_stopped_ends(world: World, driver: Driver) -> None:
    until(lambda: running(PLAIN) and running(OTHER))
    for name in (PLAIN, OTHER):
        desired_state.stop(name, by="ada", why="")

    until(lambda: not lock.is_held(driver_files.lock_path()))
    for name in (PLAIN, OTHER):
        desired_state.resume(name, by="ada", why="")


def test_a_query_that_fails_is_tried_alone_and_the_next_driver_knows_how_often(
    world: World, driver: Driver, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    until(lambda: running(PLAIN) and running(OTHER))
    prepare = getattr(queries, PREPARE[path])

    def broken(*given: Any) -> object:
        pipeline = given[0].pipeline if path == "shared" else given[1]
        if pipeline.name == PLAIN:
            raise StreamFailed("no space left", pipeline=PLAIN, cure="make room")
        return prepare(*given)

    monkeypatch.setattr(queries, PREPARE[path], broken)
    streams.want_anew(PLAIN, by="test", why="")
    until(lambda: row(PLAIN).get("failures", 0) >= 3)  # type: ignore[operator]
    assert running(OTHER)
    found = status.diagnose(PLAIN)
    assert found.state == "crash_looping" and "no space left" in found.reason and "try" in found.reason
    (incident,) = incidents.opened(PLAIN)
    assert (incident.cause, incident.cure) == ("stream failed", "make room")
    assert incident.times >= 3

    streams.show(PLAIN, failures=6, retry_at=now_ms() + 40_000)
    heir = StreamRunner(driver, world.pipeline(PLAIN))
    assert heir.tries.failures == 6 and 35 < heir.tries.retry_at - time.monotonic() <= 40

    monkeypatch.setattr(queries, PREPARE[path], prepare)
    before = len(world.ledger(PLAIN))
    world.produce(worlds.story(7, 10, world.prefix))
    desired_state.restart(PLAIN, by="ada", why="made room")
    until(lambda: len(world.ledger(PLAIN)) > before)
    until(lambda: not incidents.opened(PLAIN))
    assert row(PLAIN)["failures"] == 0


def test_what_tally_refuses_is_given_up_with_its_cure(
    world: World, driver: Driver, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    until(lambda: running(PLAIN) and running(OTHER))
    refusal = AnswerIsNo("the checkpoint is gone", pipeline=PLAIN, field="checkpoint", cure=f"tally rebuild {PLAIN}")

    def refused(*_: object, **__: object) -> None:
        raise refusal

    with monkeypatch.context() as patch:
        patch.setattr(queries, PREPARE[path], refused)
        streams.want_anew(PLAIN, by="test", why="")
        until(lambda: row(PLAIN)["state"] == "gave_up")
        tries = row(PLAIN)["failures"]
        time.sleep(2.5)
        assert row(PLAIN)["failures"] == tries == trying.REFUSALS, "it is not tried for ever"
    found = status.diagnose(PLAIN)
    assert found.state == "failed" and "the checkpoint is gone" in found.reason
    assert f"tally doctor {PLAIN}" in found.next_step
    desired_state.restart(PLAIN, by="ada", why="mended")
    until(lambda: running(PLAIN))


def test_a_changed_definition_is_outdated_until_it_is_restarted(world: World, driver: Driver) -> None:
    until(lambda: running(PLAIN) and running(OTHER))
    old = world.pipeline(OTHER).version
    file = world.folder / "catalogue" / "pipelines" / f"{OTHER}.py"
    file.write_text(file.read_text().replace('F.sum("amount")', '(F.sum("amount") * 2)'))
    new = world.pipeline(OTHER).version
    assert new != old
    found = status.diagnose(OTHER)
    assert found.state == "outdated" and old in found.reason and new in found.reason
    desired_state.restart(OTHER, by="ada", why="twice the total")
    until(lambda: len(world.ledger(OTHER)) > 0 and running(OTHER))
    assert status.diagnose(OTHER).state in ("healthy", "idle", "starting", "catching_up")
    assert row(OTHER)["version"] == new
