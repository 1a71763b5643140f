"""Pipelines that share their topic's stream: the same promise, by a watermark of each partition."""

from __future__ import annotations

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from test_negative_controls import reconcile, states
from world import MINUTE, World

from tally.speed import checkpoint

NAMES = ["tumbling_p", "hopping_p"]
IDLE = MINUTE


@pytest.fixture
def shared(
    spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setenv("TALLY_SHARED", "true")
    folder = tmp_path_factory.mktemp("shared")
    return worlds.make(folder, f"{folder.name}.", broker, monkeypatch, NAMES)


def told(world: World, name: str) -> oracle.Streamed:
    """What the stream must have put out, by the offsets of its micro-batches and nothing else that it says."""
    (topic,) = world.topics(name)
    batches = world.boundaries(name)
    ends = []
    for batch in batches:
        held = next(
            found
            for found in ({p: end for (of, p), end in drive.items() if of == topic} for drive in world.drained)
            if all(found.get(p, 0) >= to for p, (_, to) in batch.ranges[0].items())
        )
        ends.append({p: held.get(p, 0) for p in range(worlds.PARTITIONS)})
    return oracle.shared(worlds.shape_of(name), world.truth(name)[0], batches, ends, IDLE)


def drive(world: World, patch: pytest.MonkeyPatch, seed: int = 5, count: int = 220) -> None:
    """A story in three rounds, each under a new driver and in micro-batches of another size."""
    records = worlds.story(seed, count, world.prefix, late=0.2)
    third = len(records) // 3
    for at, size in enumerate((37, 90, 60)):
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", str(size))
        world.produce(records[at * third : (at + 1) * third if at < 2 else None])
        world.stream()
    world.produce(worlds.flush(world.prefix))
    world.stream()


def test_both_layers_are_what_the_oracle_says_and_reconcile(shared: World, monkeypatch: pytest.MonkeyPatch) -> None:
    drive(shared, monkeypatch)
    for name in NAMES:
        shape, out = worlds.shape_of(name), told(shared, name)
        assert checkpoint.root(name, shared.pipeline(name).version, 1) == checkpoint.topic_root(shared.topics(name)[0])
        assert [batch.late_watermark for batch in shared.ledger(name)] == out.watermarks
        assert shared.table("speed", name) == out.rows
        assert shared.batch(name) == oracle.batch_rows(shape, shared.truth(name))
        found = reconcile(shared, name)
        assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
        assert found["events"] == dict(oracle.causes(shape, shared.truth(name), out))
        assert found["events"]["late"] > 0, "a story without late events proves nothing"
        assert found["conservation"]["balanced"]
        assert set(states(shared, name).values()) == {"sealed"}
    one, other = (shared.ledger(name) for name in NAMES)
    assert [(b.batch, b.ranges, b.watermark) for b in one] == [(b.batch, b.ranges, b.watermark) for b in other]
