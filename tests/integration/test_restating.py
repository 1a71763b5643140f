"""Stating windows again gives the same table, in any order, pieces and number; late events are taken in."""

from __future__ import annotations

import random
from pathlib import Path

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from world import MINUTE, T0

from tally.base.duration import from_millis, iso
from tally.batch import restate
from tally.catalog.ranges import without
from tally.jobs.batch import batch
from tally.reconcile.rows.digest import Digest
from tally.reconcile.rows.hashes import digests

NAMES = ["hopping_u", "session_p", "join_p"]
SPAN = range(T0 - 70 * MINUTE, T0 + 80 * MINUTE, 25 * MINUTE + 7000)  # edges that fall on no window's


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        world = worlds.make(tmp_path_factory.mktemp("restating"), "restating.", broker, patch, NAMES)
        records = worlds.story(21, 120, world.prefix)
        world.produce(records[: len(records) // 2])
        yield world, records[len(records) // 2 :]


def content(spark: SparkSession, path: str, pipeline) -> dict[int, Digest]:
    return digests(spark.read.format("delta").load(path).drop("_date"), pipeline)


def text(at: int) -> str:
    return iso(from_millis(at))


def test_events_that_come_later_are_taken_in_without_being_asked_for(made) -> None:
    """Only the newest interval is asked for; what late events touched before it is restated with it."""
    world, later = made
    for name in NAMES:
        assert world.batch(name) == oracle.batch_rows(worlds.shape_of(name), world.truth(name))
    world.produce(later)
    newest = max(event.time for event in world.truth(NAMES[0])[0])
    for name in NAMES:
        batch(name, text(newest - MINUTE), text(newest + 10 * MINUTE))
        assert world.table("batch", name) == oracle.batch_rows(worlds.shape_of(name), world.truth(name))


def test_windows_of_an_interval_that_nobody_asked_for_are_stated_by_the_next_one(
    made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is ahead of the batches, and an interval has no run: no later event touches its windows."""
    world, _ = made
    name, shape = NAMES[0], worlds.shape_of(NAMES[0])
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    whole = oracle.batch_rows(shape, world.truth(name))
    first, last = T0 - 20 * MINUTE, T0 + 30 * MINUTE
    batch(name, text(T0 - 90 * MINUTE), text(first))
    assert world.table("batch", name) == {place: row for place, row in whole.items() if place[0] < first}
    stated = restate.newest(world.pipeline(name))
    assert stated is not None and stated.left and stated.left[0][0] >= first
    batch(name, text(last), text(T0 + 80 * MINUTE))
    assert world.table("batch", name) == whole
    stated = restate.newest(world.pipeline(name))
    assert stated is not None and stated.left == []


@pytest.mark.parametrize(
    "name", [name if name.startswith("hopping") else pytest.param(name, marks=pytest.mark.long) for name in NAMES]
)
def test_in_pieces_in_any_order_and_twice(
    made, spark: SparkSession, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = made
    whole = content(spark, world.path("batch", name), world.pipeline(name))
    pieces = [(start, start + SPAN.step) for start in SPAN]
    random.Random(name).shuffle(pieces)
    for start, end in pieces[:2]:
        batch(name, text(start), text(end), only=True)
    assert content(spark, world.path("batch", name), world.pipeline(name)) == whole, "pieces of it again"
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    for start, end in [*pieces, pieces[0]]:
        batch(name, text(start), text(end), only=True)
    assert content(spark, world.path("batch", name), world.pipeline(name)) == whole, "made of pieces from nothing"


def test_a_range_without_events_is_stated_too(made) -> None:
    """Else a quiet hour could never be reconciled: nobody would know that the batch has looked at it."""
    world, _ = made
    name = NAMES[0]
    start, end = T0 + 600 * MINUTE, T0 + 660 * MINUTE
    before = world.table("batch", name)
    batch(name, text(start), text(end))
    stated = restate.newest(world.pipeline(name))
    assert stated is not None and not without([(start, end)], stated.covered)
    assert world.table("batch", name) == before
