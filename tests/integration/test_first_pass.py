"""Layers that agree are compared without a JVM; one bit that doesn't agree is found, and Spark is asked about it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import world as worlds
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from world import World

from tally.base.duration import from_millis, iso
from tally.control import runs
from tally.reconcile import comparison
from tally.reconcile.first_pass import layers as first_pass
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.judge import judge

NAMES = ["tumbling_u", "hopping", "session_u", "join_u"]
# As a task of the DAGs does it.
ALONE = """
import sys
from tally.jobs.compare import compared, without_spark
from pyspark import SparkContext
said = without_spark(sys.argv[1:]) or compared(sys.argv[1:])
print(said.split()[-1], SparkContext._gateway is not None)
"""


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Pipelines of four kinds over events with second copies, none late; both layers done, each compared once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "60")
        made = worlds.make(tmp_path_factory.mktemp("first"), "first.", broker, patch, NAMES)
        made.produce(worlds.story(11, 120, made.prefix, late=0.0, again=0.1) + worlds.flush(made.prefix))
        made.stream()
        for name in NAMES:
            made.batch(name)
            made.compare(name)
        yield made


def span(world: World) -> tuple[str, str]:
    """The windows that are over: a session that is open has no row in the stream."""
    return world.span()[0], iso(from_millis(worlds.T0 + 200 * worlds.MINUTE))


def alone(world: World, name: str) -> tuple[comparison.Comparison, bool]:
    """A comparison in a process of its own, and whether that had a JVM."""
    (start, end), before = span(world), len(runs.reconciliation_history(name))
    command = [sys.executable, "-c", ALONE, name, "--from", start, "--to", end]
    somewhere = os.environ | {"TZ": "Asia/Tokyo"}
    done = subprocess.run(command, env=somewhere, capture_output=True, text=True, check=True)
    number, jvm = done.stdout.split()[-2:]
    assert len(runs.reconciliation_history(name)) == before + 1, "what was left to Spark keeps nothing"
    return comparison.of(int(number)), jvm == "True"


@pytest.mark.parametrize("name", NAMES)
def test_layers_that_agree_need_no_jvm_and_are_told_the_same(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, jvm = alone(world, name)
    assert found.different == 0 and found.windows > 10
    assert jvm is False

    def unsure(*_: object) -> None:
        raise Unsure("a test asks Spark")

    monkeypatch.setattr(first_pass, "read", unsure)
    by_spark = world.compared(name, *span(world))
    mine = runs.reconciliation(found.number)
    theirs = runs.reconciliation(by_spark["id"])
    assert mine is not None and theirs is not None
    assert mine.summary == theirs.summary
    assert mine.slots == theirs.slots


def test_one_bit_of_one_row_among_many_is_found_and_held(world: World) -> None:
    name = "tumbling_u"
    table = DeltaTable.forPath(world_spark(), world.path("speed", name))
    row = table.toDF().orderBy("window_start", "shop", F.desc("_batch")).first()
    assert row is not None
    here = (F.col("window_start") == row["window_start"]) & (F.col("shop") == row["shop"])
    bit = here & (F.col("_batch") == row["_batch"])
    table.update(bit, {"n": F.col("n").bitwiseXOR(F.lit(1).cast("bigint"))})
    found, jvm = alone(world, name)
    assert (found.different, found.unexplained, jvm) == (1, 1, True)
    assert [one.key for one in found.rows] == [{"shop": row["shop"]}]
    assert judge(found.number).verdict == comparison.HELD
    table.update(bit, {"n": F.lit(row["n"])})
    found, jvm = alone(world, name)
    assert (found.different, jvm) == (0, False)


def test_a_late_event_among_many_is_found_and_explained(world: World) -> None:
    name = "tumbling_u"
    late = worlds.Record(
        f"{world.prefix}orders_u", 0, worlds.T0 + 500 * worlds.MINUTE,
        *worlds.order(9_999, worlds.T0 + 5 * worlds.MINUTE, 9_999, 1, 0.25),
    )  # fmt: skip
    world.produce([late])
    world.stream(name)
    world.batch(name)
    found, jvm = alone(world, name)
    assert (found.different, found.unexplained, dict(found.events), jvm) == (1, 0, {"late": 1}, True)
    assert found.conserved is not None and found.conserved.balanced


def world_spark() -> SparkSession:
    found = SparkSession.getActiveSession()
    assert found is not None
    return found
