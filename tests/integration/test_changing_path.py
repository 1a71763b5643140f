"""Which path a stream takes is decided when a generation begins, and changes with the next one that a person makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from test_negative_controls import reconcile
from world import World

from tally.cli import app
from tally.control import incidents
from tally.speed.driver import Driver
from tally.supervise import status

BEFORE, NEW = "tumbling_u", "hopping_u"


@pytest.fixture
def world(spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "40")
    return worlds.make(tmp_path, f"{tmp_path.name}.", broker, monkeypatch, [BEFORE, NEW])


def check(world: World, *names: str) -> None:
    """Each stream is what the oracle says of its micro-batches, the batch is right, and both reconcile."""
    for name in names:
        world.check_stream(name)
        assert world.batch(name) == oracle.batch_rows(worlds.shape_of(name), world.truth(name))
        found = reconcile(world, name)
        assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
        assert found["events"]["late"] > 0 and found["conservation"]["balanced"]


def test_a_stream_of_before_goes_on_in_its_own_query_and_a_new_one_shares(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home that was made when each pipeline had a query of its own, opened with the settings as they are."""
    records = worlds.story(15, 160, world.prefix, late=0.2)
    monkeypatch.setenv("TALLY_SHARED", "false")
    world.produce(records[: len(records) // 2])
    world.stream(BEFORE)
    begun = world.ledger(BEFORE)
    monkeypatch.delenv("TALLY_SHARED")
    world.produce(records[len(records) // 2 :] + worlds.flush(world.prefix))
    world.stream()
    assert (world.path_of(BEFORE), world.path_of(NEW)) == ("own", "shared")
    assert world.ledger(BEFORE)[: len(begun)] == begun and len(world.ledger(BEFORE)) > len(begun) > 1
    assert {batch.generation for batch in world.ledger(BEFORE)} == {1}
    check(world, BEFORE, NEW)


def rebuilt(name: str, path: str) -> None:
    assert app.run(["rebuild", name, "--path", path, "--why", "a test"]) == 0


def killed(failpoint: str) -> None:
    """A driver of its own process that dies there."""
    done = subprocess.run(
        [sys.executable, "-c", "from tally.cli import main; main()", "stream", "--until-caught-up"],
        env={**os.environ, "TALLY_FAILPOINT": failpoint, "TALLY_STREAM_MEMORY": "512m"},
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, f"{failpoint} was not passed: {done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param({}, id="nobody dies", marks=pytest.mark.long),
        pytest.param({"own": "rebuild.after_emptying", "shared": "speed.after_commit:2"}, id="after a commit"),
        pytest.param(
            {"own": "speed.after_commit:2", "shared": "rebuild.after_emptying"},
            id="after emptying",
            marks=pytest.mark.long,
        ),
    ],
)
def test_cut_out_to_a_query_of_its_own_and_back(world: World, deaths: dict[str, str]) -> None:
    """Each generation has all of the events and nothing of the one before; the pipeline beside it goes on."""
    records = worlds.story(16, 200, world.prefix, late=0.2)
    quarter = len(records) // 4
    world.produce(records[:quarter])
    world.stream()
    beside = world.ledger(NEW)
    for number, path in ((2, "own"), (3, "shared")):
        rebuilt(BEFORE, path)
        assert world.path_of(BEFORE) == path == statuses()[BEFORE].path
        world.produce(records[(number - 1) * quarter : number * quarter])
        if path in deaths:
            world.drained.append(dict(world.ends))
            killed(deaths[path])
        world.stream()
        assert world.generation(BEFORE) == number and world.path_of(NEW) == "shared"
        world.check_stream(BEFORE)
    world.produce(records[3 * quarter :] + worlds.flush(world.prefix))
    world.stream()
    assert {batch.generation for batch in world.ledger(BEFORE)} == {1, 2, 3}
    went_on = [(one.batch, one.ranges, one.watermark) for one in world.ledger(NEW)]
    assert went_on[: len(beside)] == [(one.batch, one.ranges, one.watermark) for one in beside]
    assert {batch.generation for batch in world.ledger(NEW)} == {1}
    assert world.told(BEFORE).late[0] and world.told(NEW).late[0]
    check(world, BEFORE, NEW)
    told = sorted(one.evidence for one in incidents.history(BEFORE) if one.cause == "rebuilt")
    assert "generation 2" in told[0] and "in a query of its own" in told[0]
    assert "generation 3" in told[1] and "with its topic's stream" in told[1]


def statuses() -> dict[str, status.Status]:
    return {one.health.pipeline: one for one in status.statuses()}


def test_one_whose_open_windows_outgrow_its_room_says_the_way_out_which_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce(worlds.story(17, 100, world.prefix, late=0.2))
    monkeypatch.setenv("TALLY_OPEN_GROUPS", "3")
    failed = {error.pipeline: error for error in Driver(world.names, until_caught_up=True).run()}
    assert f"tally rebuild {BEFORE} --path own" in (failed[BEFORE].cure or "")
    (told,) = incidents.opened(BEFORE)
    assert told.cure == failed[BEFORE].cure
    for name in world.names:
        rebuilt(name, "own")
    assert incidents.opened() == []
    world.produce(worlds.flush(world.prefix))
    world.stream()
    check(world, *world.names)
    rebuilt(BEFORE, "shared")
    (again,) = Driver([BEFORE], until_caught_up=True).run()
    assert again.field == "TALLY_OPEN_GROUPS" and world.path_of(BEFORE) == "shared"
    monkeypatch.delenv("TALLY_OPEN_GROUPS")
    world.stream()
    check(world, *world.names)


def test_what_cannot_share_is_not_made_to(
    spark: SparkSession,
    broker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = worlds.make(tmp_path, "cannot.", broker, monkeypatch, ["session"])
    assert app.run(["rebuild", "session", "--path", "shared"]) == 1
    said = capsys.readouterr().err
    assert "it cannot share its topic's stream" in said and "tally rebuild session --path own" in said
    assert made.generation("session") == 1
    assert app.run(["rebuild", "session", "--path", "sideways"]) == 2
