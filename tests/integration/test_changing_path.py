"""Which path a stream takes is decided when a generation begins, and changes with the next one that a person makes."""

from __future__ import annotations

from pathlib import Path

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from test_negative_controls import reconcile
from world import World

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
