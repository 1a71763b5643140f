"""Windows that a backfill of others left behind are neither compared nor sealed before they are stated again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from test_negative_controls import states
from world import MINUTE, T0, World

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo
from tally.batch import restate
from tally.control import runs
from tally.jobs.batch import batch
from tally.reconcile.compare import compare
from tally.reconcile.judge import judge
from tally.reconcile.seal import seal


@pytest.fixture(scope="module", params=["tumbling", pytest.param("session", marks=pytest.mark.long)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[World]:
    """Both layers hold the first half; then the second half comes, and a backfill of a later hour archives it."""
    with pytest.MonkeyPatch.context() as patch:
        world = worlds.make(tmp_path_factory.mktemp("stale"), f"stale.{name}.", broker, patch, [name])
        records = worlds.story(31, 120, world.prefix)
        world.produce(records[: len(records) // 2])
        world.stream()
        world.batch(name)
        world.produce(records[len(records) // 2 :] + worlds.flush(world.prefix))
        world.stream()
        batch(name, iso(from_millis(T0 + 600 * MINUTE)), iso(from_millis(T0 + 660 * MINUTE)), only=True)
        yield world


def test_a_window_that_becomes_stale_between_compare_and_seal_is_not_sealed(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill of other windows archives a late event of this one meanwhile."""
    world = worlds.make(tmp_path, "stale.meanwhile.", broker, monkeypatch, ["tumbling"])
    records = worlds.story(31, 60, world.prefix)
    world.produce(records[:30] + worlds.flush(world.prefix))
    world.stream()
    world.batch("tumbling")
    number = compare("tumbling")
    world.produce(records[30:])
    batch("tumbling", iso(from_millis(T0 + 600 * MINUTE)), iso(from_millis(T0 + 660 * MINUTE)), only=True)
    assert judge(number).verdict == "reconciled"
    done = seal(number)
    stated = restate.newest(world.pipeline("tumbling"))
    assert stated is not None and stated.stale and done.restated_since
    sealed = [slot for slot, state in states(world, "tumbling").items() if state == "sealed"]
    assert sealed and not [slot for slot in sealed if any(start <= slot < end for start, end in stated.stale)]


def test_stale_windows_wait_for_the_next_batch(made: World, name: str) -> None:
    stated = restate.newest(made.pipeline(name))
    assert stated is not None and stated.stale
    number = compare(name)
    assert judge(number).verdict == "reconciled"
    seal(number)
    row = runs.reconciliation(number)
    assert row is not None and row.summary["unexplained"] == 0
    judged = states(made, name)
    assert judged and not [slot for slot in judged if any(start <= slot < end for start, end in stated.stale)]
    start, end = stated.stale[0]
    with pytest.raises(AnswerIsNo, match="since later events of it were archived") as refused:
        compare(name, iso(from_millis(start)), iso(from_millis(end)))
    assert refused.value.cure and refused.value.cure.startswith(f"tally batch {name} --from")

    batch(name, iso(from_millis(T0 + 600 * MINUTE)), iso(from_millis(T0 + 660 * MINUTE)))
    stated = restate.newest(made.pipeline(name))
    assert stated is not None and stated.stale == []
    assert made.table("batch", name) == oracle.batch_rows(worlds.shape_of(name), made.truth(name))
    number = compare(name)
    assert judge(number).verdict == "reconciled"
    seal(number)
    closed = {place[0] for place in made.table("batch", name) if place[0] < T0 + 200 * MINUTE}
    pipeline = made.pipeline(name)
    assert {pipeline.slot(start) for start in closed} <= {
        s for s, state in states(made, name).items() if state == "sealed"
    }
