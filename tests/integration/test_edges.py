"""What lies on an edge: microseconds beside a watermark, and copies of an id in several partitions of a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import world as worlds
from pyspark.sql import SparkSession
from world import MINUTE, SECOND, T0, Record, World

from tally.base.duration import from_millis, iso
from tally.control import runs
from tally.jobs.batch import batch
from tally.reconcile.compare import compare
from tally.reconcile.judge import judge

NAMES = ["tumbling_u", "session"]
PAIRS = 30
REACHED = T0 + 60 * MINUTE
WATERMARK = REACHED - 2 * MINUTE


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        world = worlds.make(tmp_path_factory.mktemp("edges"), "edges.", broker, patch, NAMES)
        for at in range(PAIRS):  # one id, two times and amounts, a partition each
            for partition in (0, 1):
                tell(world, at, T0 + at * MINUTE + partition * 20 * SECOND, partition, shop=at % 2)
        tell(world, 100, REACHED)
        world.stream()
        gap = 2 * MINUTE
        for at, (time, micros) in enumerate(
            [(WATERMARK, 0), (WATERMARK, 500), (WATERMARK - gap, 0), (WATERMARK - gap, 500)]
        ):
            tell(world, 200 + at, time, shop=10 + at, micros=micros)
        world.stream()
        world.produce(worlds.flush(world.prefix))
        world.stream()
        for name in NAMES:
            batch(name, iso(from_millis(T0 - 10 * MINUTE)), iso(from_millis(T0 + 300 * MINUTE)))
        yield world


def reconciled(name: str) -> dict[str, Any]:
    number = compare(name)
    assert judge(number).verdict == "reconciled"
    row = runs.reconciliation(number)
    assert row is not None and row.summary["unexplained"] == 0
    return dict(row.summary)


def tell(world: World, at: int, time: int, partition: int = 0, *, shop: int = 0, micros: int = 0) -> None:
    """An order at a time in milliseconds and some microseconds, to both topics of orders."""
    text = (datetime.fromtimestamp(time / 1000, UTC) + timedelta(microseconds=micros)).isoformat()
    body = json.dumps({"id": at, "ref": at, "shop": shop, "amount": float(at * 10 + partition), "at": text}).encode()
    world.produce([Record(f"{world.prefix}orders{suffix}", partition, time, body) for suffix in ("", "_u")])


def test_copies_of_an_id_in_two_partitions_are_followed_as_spark_met_them(made: World) -> None:
    found = reconciled("tumbling_u")
    assert found["events"]["late"] == 3, "all but the one half a millisecond after the watermark"
    (order,) = {tuple(batch.ranges[f"{made.prefix}orders_u"]) for batch in made.ledger("tumbling_u")[:1]}
    wrong = 0 if order[0] == 0 else PAIRS  # the batch keeps the first to arrive, that of partition 0
    assert found["events"].get("duplicate", 0) == 2 * wrong


def test_a_session_that_ends_half_a_millisecond_after_the_watermark_is_not_late(made: World) -> None:
    found = reconciled("session")
    assert found["events"]["late"] == 1, "the one that ends at the watermark"
    assert sum(place[2] >= 10 for place in made.table("speed", "session")) == 3
