"""Parts that are made of events without Spark are those that Spark's plan makes of them."""

from __future__ import annotations

import math
import random
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from parts.declared import EVENTS, split_of
from parts.test_split import SLOW, T0, drawn, frame_of
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tally import hopping, pipeline, tumbling
from tally.catalog.spec import Pipeline, Window
from tally.kinds import kind_of
from tally.kinds.clock_windows import MOST_ROWS, ClockWindows
from tally.parts import Taking, Unknown

MEASURES = [
    "count(*) AS n", "count(fare, name) AS both", "count_if(paid) AS paid_ones", "sum(cents) AS s_cents",
    "sum(small) AS s_small", "sum(price) AS s_price", "sum(wide) AS s_wide", "avg(wide) AS a_wide",
    "avg(price) AS a_price", "avg(cents) AS a_cents", "min(wide) AS least", "min(name) AS first", "max(name) AS last",
    "min(day) AS day", "max(at) AS newest", "bool_and(paid) AS every", "sum(small % 7) AS rests",
    "sum(cents) FILTER (WHERE paid) AS s_paid", "sum(CASE WHEN small > 3 THEN 1 WHEN paid THEN 2 END) AS cases",
    "sum(price * 2) AS twice", "sum(CAST(small AS DECIMAL(9,2)) + price) AS mixed",
]  # fmt: skip
# What two orders of adding make another of, to the last digits, or whose zeros and no numbers are Spark's to say.
FLOATS = ["sum(fare) AS f_sum", "avg(fare) AS f_mean", "min(fare) AS f_least", "max(tip) AS f_tip"]
KEPT = ["true", "name IS NULL OR name <> 'drop'", "price >= 2.5 AND NOT paid", "name IN ('a', 'B') OR small < 0",
        "at > timestamp'2026-11-07 00:07:30Z'", "day >= date'1999-12-31'",
        "window.end > timestamp'2026-11-07 00:08:30Z'"]  # fmt: skip
WINDOWS = [tumbling("1 minute"), hopping("1 minute", by="20 seconds"), hopping("50 seconds", by="20 seconds")]


def declared(window: Window, where: str, *measures: str) -> Pipeline:
    @pipeline(reads=EVENTS, window=window, key=["zone", "name"])
    def rows(events: DataFrame) -> DataFrame:
        return events.where(where).groupBy("window", "zone", "name").agg(*map(F.expr, measures))

    return rows


def both_ways(
    spark: SparkSession, one: Pipeline, rows: list[dict[str, Any]], pieces: int = 1
) -> tuple[pa.Table | None, pa.Table]:
    """The parts of these events in some pieces put together here, and Spark's."""
    split, kind, frame = split_of(spark, one), kind_of(one), frame_of(spark, rows).drop("piece").coalesce(1)
    taking = Taking.of(kind, split, frame)
    taking, events = cloudpickle.loads(cloudpickle.dumps(taking)), frame.toArrow()
    size = max(1, -(-len(events) // pieces))
    found = [taking.over(events.slice(at, size)) for at in range(0, max(1, len(events)), size)]
    made = None if None in found else taking.together([part for part in found if part is not None])
    return made, split.parts(kind.bounded([frame])[0]).toArrow()


def told(parts: pa.Table) -> list[str]:
    return sorted(map(repr, parts.to_pylist()))


@settings(max_examples=1, derandomize=True, **SLOW)
@given(rows=drawn())
@example(rows=[])
def test_parts_are_those_that_spark_makes(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    hold(spark, rows, 0)


@pytest.mark.long
@settings(max_examples=30, **SLOW)
@given(rows=drawn())
def test_parts_of_many_more_events_are_those_that_spark_makes(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    hold(spark, rows, len(rows))


def hold(spark: SparkSession, rows: list[dict[str, Any]], turn: int) -> None:
    for at, window in enumerate(WINDOWS):
        where = KEPT[(turn + at) % len(KEPT)]
        for pieces in (1, 3):
            found, expected = both_ways(spark, declared(window, where, *MEASURES), rows, pieces)
            assert found is not None and found.schema == expected.schema
            assert told(found) == told(expected)


@pytest.mark.parametrize(
    ("where", "more", "panes"),
    [("small > 1", [], True), ("window.end > at", [], False), ("true", ["windowed"], False)],
    ids=["groups alone", "it filters by them", "it groups by them twice"],
)
def test_overlapping_windows_are_made_of_panes_where_they_decide_of_groups_alone(
    spark: SparkSession, where: str, more: list[str], panes: bool
) -> None:
    @pipeline(reads=EVENTS, window=WINDOWS[1], key=["zone"])
    def rows(events: DataFrame) -> DataFrame:
        kept = events.where(where).withColumn("windowed", F.col("window"))
        return kept.groupBy("window", "zone", *more).agg(F.sum("cents").alias("cents"), F.max("at").alias("newest"))

    told_of = [
        {"id": at, "zone": at % 2, "at": T0 + timedelta(seconds=7 * at), "cents": at, "small": at % 5}
        for at in range(40)
    ]
    taking = Taking.of(kind_of(rows), split_of(spark, rows), frame_of(spark, []).drop("piece"))
    assert taking.in_panes is panes
    found, expected = both_ways(spark, rows, told_of, pieces=3)
    assert found is not None and told(found) == told(expected)


def test_floating_numbers_are_added_up_too(spark: SparkSession) -> None:
    chance = random.Random(3)
    rows = [
        {
            "id": at, "zone": at % 3, "at": T0 + timedelta(seconds=at), "fare": chance.choice([None, at / 4, -at / 8]),
            "tip": chance.choice([None, 1.5, 2.0]),
        }
        for at in range(200)
    ]  # fmt: skip
    for pieces in (1, 4):
        found, expected = both_ways(spark, declared(WINDOWS[0], "fare > 3 OR tip > 1", *FLOATS), rows, pieces)
        assert found is not None and told(found) == told(expected), "quarters are exact in any order"


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        ("min(fare)", {"fare": [0.0, -0.0]}),
        ("max(fare)", {"fare": [1.0, math.nan]}),
        ("count_if(fare > 1)", {"fare": [1.0, math.nan]}),
        ("sum(small % 0)", {"small": [1]}),
        ("sum(cents + 1)", {"cents": [2**63 - 1]}),
        ("sum(CAST(price AS DECIMAL(4,2)))", {"price": [Decimal("1234.50")]}),
        ("sum(wide)", {"wide": [Decimal(9 * 10**19), Decimal(9 * 10**19), Decimal(-9 * 10**19)]}),
    ],
)
def test_what_spark_is_to_say_is_left_to_it(spark: SparkSession, measure: str, values: dict[str, list[Any]]) -> None:
    one = declared(WINDOWS[0], "true", f"{measure} AS m")
    shape = frame_of(spark, []).drop("piece")
    taking = Taking.of(kind_of(one), split_of(spark, one), shape)
    ((name, column),) = values.items()
    count, kinds = len(column), to_arrow_schema(shape.schema, timezone="UTC")
    events = {"zone": [1] * count, "name": ["a"] * count, "at": [T0] * count, name: column}
    assert taking.over(pa.table({of: pa.array(some, kinds.field(of).type) for of, some in events.items()})) is None


@pytest.mark.parametrize(
    ("measure", "lacking"),
    [
        ("sum(shiftright(cents, 63))", "a shift by what is no number of bits"),
        ("min(shiftright(cents, zone))", "a shift by what is no number of bits"),
        ("count_if(name < CAST(X'FF' AS STRING))", "a text of bytes that are no letters"),
        ("stddev(fare)", "an aggregate whose parts are not added up value by value"),
        ("max_by(name, id)", "an aggregate whose parts are not added up value by value"),
        ("max(struct(paid, id))", "the max of struct<paid:boolean,id:bigint>"),
        ("min(upper(name))", "the operation Upper"),
        ("sum(length(name))", "the operation Length"),
    ],
)
def test_what_is_not_known_here_is_sparks_plan(spark: SparkSession, measure: str, lacking: str) -> None:
    one = declared(WINDOWS[0], "true", f"{measure} AS m")
    with pytest.raises(Unknown, match=re.escape(lacking)):
        Taking.of(kind_of(one), split_of(spark, one), frame_of(spark, []).drop("piece"))


@pytest.mark.parametrize("where", ["false", "1 = 2", "zone IN (NULL)", "zone <> zone", "window IS NULL"])
def test_a_function_that_keeps_no_event_is_sparks(spark: SparkSession, where: str) -> None:
    one = declared(WINDOWS[0], where, "count(*) AS n")
    with pytest.raises(Unknown):
        Taking.of(kind_of(one), split_of(spark, one), frame_of(spark, []).drop("piece"))


def test_a_decimal_that_a_larger_scale_does_not_hold_is_never_another_number(spark: SparkSession) -> None:
    """Of what is too large for 128 bits by far, one in ten looks like a number that is not."""
    one, shape = (
        declared(WINDOWS[0], "true", "max(CAST(wide AS DECIMAL(38,30))) AS m"),
        frame_of(spark, []).drop("piece"),
    )
    taking = Taking.of(kind_of(one), split_of(spark, one), shape)
    kinds = to_arrow_schema(shape.schema, timezone="UTC")
    for number in range(200):
        value = Decimal(10**29 + number * 777_777_777_777_777_777_777_777).scaleb(-18)
        events = {"zone": [1], "name": ["a"], "at": [T0], "wide": [value]}
        assert taking.over(pa.table({of: pa.array(some, kinds.field(of).type) for of, some in events.items()})) is None


def test_more_rows_of_overlapping_windows_than_fit_in_memory_are_sparks() -> None:
    windows = ClockWindows(time="at", size=50_000_000, step=20_000_000)
    with pytest.raises(ArithmeticError):
        windows.check_rows(MOST_ROWS)
