"""The promise: however a stream is cut into micro-batches, it reconciles with the batch, and the batch is right."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import oracle
import pytest
import world as worlds
from pyspark.sql import SparkSession
from world import World

KINDS = ("tumbling", "hopping", "session", "join")
# Each example costs a minute: two in the suite, and as many more as TALLY_TEST_SEEDS names for a long night.
SEEDS = [int(seed) for seed in os.environ.get("TALLY_TEST_SEEDS", "11,12").split(",")]


@pytest.fixture(scope="module", params=SEEDS)
def world(
    request: pytest.FixtureRequest, spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A story told in rounds: the stream drains after each, in micro-batches of another size, under a new driver.

    Odd seeds are for topics without ids, even ones for topics with.
    """
    seed = request.param
    chance = random.Random(seed)
    names = [f"{kind}{'_p' if seed % 2 else '_u'}" for kind in KINDS]
    with pytest.MonkeyPatch.context() as patch:
        made = worlds.make(tmp_path_factory.mktemp(f"core{seed}"), f"core{seed}.", broker, patch, names)
        records = worlds.story(seed, 220, made.prefix)
        cuts = sorted(chance.sample(range(len(records) // 4, len(records)), 1))
        for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
            patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", str(chance.choice([50, 70, 90])))
            made.produce(records[start:end])
            made.stream()
        made.produce(worlds.flush(made.prefix))
        made.stream()
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_both_layers_are_what_the_oracle_says_and_reconcile(world: World, kind: str) -> None:
    name = next(name for name in world.names if name.startswith(kind))
    shape, truth = worlds.shape_of(name), world.truth(name)
    told = oracle.streamed(shape, truth, world.boundaries(name))
    assert [batch.watermark for batch in world.ledger(name)] == told.watermarks
    assert world.table("speed", name) == told.rows
    assert world.batch(name) == oracle.batch_rows(shape, truth)
    found = world.compare(name)
    assert found["unexplained"] == 0
    assert found["events"] == dict(oracle.causes(shape, truth, told))
    assert found["events"].get("late", 0) > 0, "a story without late events proves nothing"
    assert found["conservation"]["balanced"]
    for topic in world.topics(name):
        balance = found["ingest"][topic]
        assert balance["balanced"] and balance["gaps"] == 0
        assert sum(balance["quarantined"].values()) == world.refused.get(topic, 0)
        assert balance["archived"] == len(world.events[topic])
