"""Rows of single events, from Kafka to their seals: to the last bit, whatever copy comes, with a udf of the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import bespoke
import pytest
from bespoke import MINUTE, T0, Bespoke
from pyspark.sql import SparkSession

NAME, TOPIC = "fares", "single.rides"
TOPICS = f"""
rides = topic("{TOPIC}", schema="id STRING, zone INT, fare DOUBLE, at TIMESTAMP", event_time="at", lateness="2 minutes",
              unique="id", partitions=2)
"""
FARES = """
from pyspark.sql.types import StringType

loud = F.udf(lambda text: text.upper(), StringType())


@pipeline(reads=rides, window=events("1 minute"), key="id")
def fares(rides):
    dear = rides.where("zone > 0").withColumn("name", loud("id"))
    return dear.where("fare > 1").select("window", "id", "fare", "name", F.try_divide("fare", "zone").alias("share"))
"""
ONE_AND_A_BIT = math.nextafter(2.0, 3.0)


def ride(id: str, fare: float, second: int = 0, *, minute: int = 0, zone: int = 1) -> dict[str, Any]:
    return {"id": id, "zone": zone, "fare": fare, "at": T0 + minute * MINUTE + second * 1000}


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bespoke]:
    with pytest.MonkeyPatch.context() as patch:
        yield bespoke.make(tmp_path_factory.mktemp("single"), broker, patch, TOPICS, {NAME: FARES})


def rows(made: Bespoke, state: str = "sealed") -> dict[str, tuple[float, str, int]]:
    return {r["id"]: (r["fare"], r["name"], r["revision"]) for r in made.served(NAME) if r["state"] == state}


def test_each_event_that_is_kept_is_sealed_once(made: Bespoke) -> None:
    for one in (ride("a", 2.0), ride("b", 0.5, 1), ride("c", 3.0, 2, zone=0), ride("d", 4.0, 3)):
        made.send(TOPIC, one)
    made.send(TOPIC, ride("d", 9.0, 4))  # a copy, which the broker had later
    for partition in (0, 1):
        made.send(TOPIC, ride(f"far{partition}", 7.0, minute=30), partition=partition)
    made.stream()
    made.batch(NAME)
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert rows(made) == {"a": (2.0, "A", 1), "d": (4.0, "D", 1)}


def test_another_copy_that_wins_is_another_revision_though_only_its_last_bit_differs(made: Bespoke) -> None:
    """Its transaction was open: the broker had it a second before the copy that both layers counted."""
    made.send(TOPIC, ride("a", ONE_AND_A_BIT), at=T0 - 1000, partition=1)
    made.stream()
    made.batch(NAME)
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"], found["different"]) == ("reconciled", 0, 1)
    assert set(found["events"]) == {"duplicate", "late"}
    assert rows(made) == {"a": (ONE_AND_A_BIT, "A", 2), "d": (4.0, "D", 2)}, "a revision is a slot's"


def test_an_event_that_came_too_late_for_the_stream_is_the_batchs_alone(made: Bespoke) -> None:
    made.send(TOPIC, ride("late", 5.0, 40), at=T0 + 31 * MINUTE)
    made.send(TOPIC, ride("late and cheap", 0.1, 41), at=T0 + 31 * MINUTE)
    made.stream()
    made.batch(NAME)
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert found["events"].get("late") == 1 + 1, "the cheap one is no row's; the copy from before is still late"
    assert rows(made)["late"] == (5.0, "LATE", 3)
