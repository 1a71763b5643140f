"""Which copies of an id are later ones, held against a look at each pair of events; no Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tally.base.duration import to_millis
from tally.catalog.declare import topic
from tally.catalog.spec import Topic
from tally.sources import archive
from tally.sources.later_copies import later_copies

LATENESS = timedelta(minutes=2)
NOON = datetime(2026, 1, 1, 23, 50, tzinfo=UTC)  # some events are of the next day
TYPES = {"BIGINT": pa.int64(), "INT": pa.int32(), "STRING": pa.string(), "DOUBLE": pa.float64()}
Event = dict[str, Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_LAKE", raising=False)


def orders(kind: str) -> Topic:
    return topic("orders", schema=f"id {kind}, at TIMESTAMP", event_time="at", lateness="2 minutes", unique="id")


def some(seed: int, kind: str, count: int = 60) -> list[Event]:
    """Events of few ids, a second apart or less; of some the broker's time is the same."""
    chance, found = random.Random(seed), []
    for offset in range(count):
        number, at = chance.randrange(12), NOON + timedelta(milliseconds=chance.randrange(20 * 60_000) // 500 * 500)
        row: Event = {"_partition": chance.randrange(2), "_offset": offset, "_ingest": offset // 20, "at": at}
        row["id"] = f"Ä{number}" if kind == "STRING" else number
        found.append(row | {"_broker_time": NOON + timedelta(seconds=offset // 4), "_date": at.date()})
    return found


def written(events: Sequence[Event], orders: Topic, kind: str) -> None:
    times = pa.timestamp("us", tz="UTC")
    shape = pa.schema(
        {"_partition": pa.int32(), "_offset": pa.int64(), "_ingest": pa.int64(), "at": times, "id": TYPES[kind],
         "_broker_time": times, "_date": pa.date32()}
    )  # fmt: skip
    table = pa.Table.from_pylist(list(events), schema=shape)
    write_deltalake(archive.path(orders), table, partition_by=["_date"], mode="append")


def by_pairs(events: Sequence[Event]) -> set[tuple[int, int]]:
    def arrival(one: Event) -> tuple[Any, ...]:
        return one["_broker_time"], one["_partition"], one["_offset"]

    return {
        (one["_partition"], one["_offset"])
        for one in events
        for other in events
        if one["id"] == other["id"] and abs(one["at"] - other["at"]) <= LATENESS and arrival(other) < arrival(one)
    }


def places(found: pa.Table | None) -> set[tuple[int, int]]:
    assert found is not None
    return {(row["_partition"], row["_offset"]) for row in found.to_pylist()}


@pytest.mark.parametrize("kind", ["BIGINT", "INT", "STRING"])
@pytest.mark.parametrize("seed", range(4))
def test_they_are_those_of_a_look_at_each_pair(seed: int, kind: str) -> None:
    events, topic = some(seed, kind), orders(kind)
    for part in (events[:30], events[30:]):
        written(part, topic, kind)
    chance = random.Random(seed)
    for _ in range(4):
        start, end = sorted(NOON + timedelta(minutes=chance.randrange(22)) for _ in range(2))
        end += timedelta(minutes=1)
        inside = {(one["_partition"], one["_offset"]) for one in events if start <= one["at"] < end}
        found = later_copies(topic, [(to_millis(start), to_millis(end))], None, None)
        assert places(found) & inside == by_pairs(events) & inside
    early = [one for one in events if one["_ingest"] <= 1]
    whole = [(to_millis(NOON), to_millis(NOON + timedelta(hours=1)))]
    assert places(later_copies(topic, whole, None, 1)) == by_pairs(early), "up to an ingest"
    assert places(later_copies(topic, whole, 0, None)) == by_pairs(events[:30]), "of a version"


def test_ids_that_may_be_the_same_in_another_way_are_left_to_spark() -> None:
    written(some(1, "DOUBLE"), orders("DOUBLE"), "DOUBLE")
    whole = [(to_millis(NOON), to_millis(NOON + timedelta(hours=1)))]
    assert later_copies(orders("DOUBLE"), whole, None, None) is None
    assert later_copies(orders("BIGINT"), [], None, None) is None
