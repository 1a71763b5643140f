"""Rows in many ranges of time: the same rows as by looking at each range, and a plan that does not grow with them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.ranges import Range, merge
from tally.sources.ranged import FEW, in_ranges, not_in_ranges

T0 = datetime(2026, 1, 5, tzinfo=UTC)
MS0 = 1_767_571_200_000


def rows(spark: SparkSession, times: list[int]) -> DataFrame:
    """Rows at so many microseconds after T0."""
    given = [(at, T0 + timedelta(microseconds=at)) for at in times]
    frame = spark.createDataFrame(given, "place BIGINT, at TIMESTAMP")
    return frame.withColumn("_date", F.to_date("at"))


def scattered(seed: int, count: int) -> list[Range]:
    chance = random.Random(seed)
    starts = [MS0 + chance.randrange(-(10**9), 10**9) for _ in range(count)]
    return [(start, start + chance.choice([1, 7, 60_000, 3_600_000])) for start in starts]


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 300])
def test_rows_are_those_that_lie_in_one_of_the_ranges(spark: SparkSession, count: int) -> None:
    ranges = scattered(count, count)
    edges = [edge * 1000 - MS0 * 1000 + by for r in ranges for edge in r for by in (-1, 0, 1)]
    times = sorted({*edges, *(random.Random(5).randrange(-(10**12), 10**12) for _ in range(300))})
    frame = rows(spark, times)
    merged = merge(ranges)
    inside = {at for at in times if any(a * 1000 <= at + MS0 * 1000 < b * 1000 for a, b in merged)}
    assert count == 0 or inside
    assert {row["place"] for row in in_ranges(frame, "at", ranges).collect()} == inside
    assert {row["place"] for row in not_in_ranges(frame, "at", ranges).collect()} == set(times) - inside
    assert in_ranges(frame, "at", ranges).count() == len(inside), "no row twice"


def length(frame: DataFrame) -> int:
    return len(frame._jdf.queryExecution().toString())


def test_the_plan_is_as_long_for_ten_thousand_ranges_as_for_ten(spark: SparkSession) -> None:
    frame = rows(spark, [0, 1])
    few, many = ([(MS0 + at * 120_000, MS0 + at * 120_000 + 60_000) for at in range(count)] for count in (10, 10_000))
    for chosen in (in_ranges, not_in_ranges):
        assert abs(length(chosen(frame, "at", many)) - length(chosen(frame, "at", few))) < 200
