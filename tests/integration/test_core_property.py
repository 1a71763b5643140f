"""The promise: however a stream is cut into micro-batches, it reconciles with the batch, and the batch is right."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

import oracle
import pytest
import world as worlds
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from world import World

KINDS = {
    "plain": ("tumbling", "hopping", "session", "join"),
    "unique": ("tumbling", "hopping", "session", "join", "events"),
}
SHARING = ("tumbling", "hopping")
# Each example costs a minute: one in the suite, TOLD; so many that Hypothesis draws on a long night.
EXAMPLES = int(os.environ.get("TALLY_TEST_EXAMPLES", "0"))
made = itertools.count()


@dataclass(frozen=True)
class Plot:
    """How a story goes: what is late, doubled and broken, where its rounds end, and how large micro-batches are."""

    seed: int
    late: float
    again: float
    bad: float
    rounds: tuple[float, ...]
    sizes: tuple[int, ...]


def shares(least: int, most: int) -> st.SearchStrategy[float]:
    return st.integers(least, most).map(lambda percent: percent / 100)


PLOTS = st.builds(
    Plot,
    seed=st.integers(0, 2**32),
    late=shares(5, 40),
    again=shares(0, 30),
    bad=shares(0, 10),
    rounds=st.lists(shares(20, 95), min_size=1, max_size=3, unique=True).map(lambda cuts: tuple(sorted(cuts))),
    sizes=st.lists(st.integers(40, 120), min_size=4, max_size=4).map(tuple),
)


# Hypothesis's own first example is the simplest: no second copy, and nothing broken.
TOLD = Plot(seed=8, late=0.15, again=0.2, bad=0.05, rounds=(0.4,), sizes=(45, 100))


@pytest.mark.parametrize("path", worlds.PATHS)
@pytest.mark.parametrize("ids", [pytest.param("plain", marks=pytest.mark.long), "unique"])
@settings(
    max_examples=max(EXAMPLES, 1),
    database=None,
    deadline=None,
    # Not Phase.shrink, which would take a day: the plot of a failure says enough to run it again.
    phases=[Phase.generate if EXAMPLES else Phase.explicit],
    suppress_health_check=list(HealthCheck),
)
@example(plot=TOLD)
@given(plot=PLOTS)
def test_both_layers_are_what_the_oracle_says_and_reconcile(
    ids: str, path: str, plot: Plot, spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the shared path as it is by default: what cannot take it has a query of its own in the same driver."""
    kinds = KINDS[ids] if path == "shared" else SHARING
    names = [f"{kind}{'_p' if ids == 'plain' else '_u'}" for kind in kinds]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_SHARED", worlds.PATHS[path])
        number = next(made)
        world = worlds.make(tmp_path_factory.mktemp(f"core{number}"), f"core{number}.", broker, patch, names)
        tell(world, plot, patch)
        for kind, name in zip(kinds, names, strict=True):
            assert world.path_of(name) == (path if kind in SHARING else "own")
            check(world, name)


def tell(world: World, plot: Plot, patch: pytest.MonkeyPatch) -> None:
    """A story told in rounds: the stream drains after each, in micro-batches of another size, under a new driver."""
    records = worlds.story(plot.seed, 220, world.prefix, late=plot.late, again=plot.again, bad=plot.bad)
    cuts = [0, *(int(share * len(records)) for share in plot.rounds), len(records)]
    for (start, end), size in zip(itertools.pairwise(cuts), plot.sizes, strict=False):
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", str(size))
        world.produce(records[start:end])
        world.stream()
    world.produce(worlds.flush(world.prefix))
    world.stream()


def check(world: World, name: str) -> None:
    shape, truth = worlds.shape_of(name), world.truth(name)
    told = world.told(name)
    world.check_stream(name)
    assert world.batch(name) == oracle.batch_rows(shape, truth)
    found = world.compare(name)
    assert found["unexplained"] == 0
    assert found["events"] == dict(oracle.causes(shape, truth, told))
    assert found["events"].get("late", 0) > 0, "a story without late events proves nothing"
    assert found["conservation"]["balanced"]
    refused = sum(world.refused.get(topic, 0) for topic in world.topics(name))
    assert found["conservation"]["quarantined"] == refused
    for topic in world.topics(name):
        balance = found["ingest"][topic]
        assert balance["balanced"] and balance["gaps"] == 0
        assert sum(balance["quarantined"].values()) == world.refused.get(topic, 0)
        assert balance["archived"] == len(world.events[topic])
