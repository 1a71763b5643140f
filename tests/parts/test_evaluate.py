"""Rows that are made of totals in this process are those that Spark makes of them."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from parts.declared import of, split_of
from parts.test_split import SLOW, T0, drawn, frame_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from tally.catalog.spec import Pipeline
from tally.kinds import kind_of
from tally.parts import Evaluation, Unknown

MEASURES = [
    "count(*) AS n", "count(fare) AS fares", "count_if(paid) AS paid_ones", "sum(cents) AS cents",
    "sum(small) AS small",
    "sum(price) AS price", "sum(wide) AS wide", "avg(fare) AS mean", "avg(cents) AS mean_cents",
    "avg(small) AS mean_small", "sum(fare) / count(*) AS per_event", "sum(fare) * 2 - 1 AS twice",
    "sum(small) + count(*) AS more", "min(name) AS first", "max(at) AS newest", "max(struct(paid, id)) AS best",
    "max_by(name, struct(day, name)) AS latest", "coalesce(sum(small), 0) AS none_is_zero",
    "if(count(small) > 2, sum(small), null) AS enough", "sum(cents) FILTER (WHERE paid) AS paid_cents",
    "min(fare) AS least", "bool_and(paid) AS all_paid", "sum(price) * 2 AS doubled", "sum(cents) % 7 AS rests",
    "min(name) < 'm' AS early", "CASE WHEN count(*) > 2 THEN 'many' ELSE 'few' END AS size",
]  # fmt: skip


def declared(*measures: str, having: str = "true") -> Pipeline:
    return of(lambda rows: rows.groupBy("window", "zone").agg(*map(F.expr, measures)).where(having))


def both_ways(spark: SparkSession, pipeline: Pipeline, rows: list[dict[str, Any]]) -> tuple[pa.Table | None, DataFrame]:
    """What is made of the totals of these events here, and in Spark."""
    split, kind = split_of(spark, pipeline), kind_of(pipeline)
    none = spark.createDataFrame([], split.schema)
    here = Evaluation.of(kind.flattened(split.finished(none)), none)
    parts = split.parts(kind.bounded([frame_of(spark, rows).drop("piece")])[0])
    totals = parts.toArrow().cast(to_arrow_schema(split.schema, timezone="UTC"))
    given = spark.createDataFrame(totals, split.schema)
    return here.over(totals), kind.flattened(split.finished(given))


@settings(max_examples=1, derandomize=True, **SLOW)
@given(rows=drawn())
@example(rows=[])
def test_rows_are_those_that_spark_makes(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    holds(spark, rows)


@pytest.mark.long
@settings(max_examples=30, **SLOW)
@given(rows=drawn())
def test_rows_of_many_more_events_are_those_that_spark_makes(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    holds(spark, rows)


def holds(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    for pipeline in (declared(*MEASURES), declared("count(*) AS n", "sum(small) AS s", having="n <> 3 AND s >= 0")):
        found, expected = both_ways(spark, pipeline, rows)
        assert found is not None
        told = expected.toArrow()
        assert found.schema == told.schema
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, told.to_pylist()))


@pytest.mark.parametrize(
    "measure",
    ["avg(wide)", "stddev(fare)", "round(sum(fare), 2)", "upper(min(name))",
     "cast(sum(cents) AS STRING)", "coalesce(max(struct(paid, id)), max(struct(paid, id)))"],
)  # fmt: skip
def test_what_is_not_known_here_is_sparks(spark: SparkSession, measure: str) -> None:
    pipeline = declared(f"{measure} AS m")
    split, kind = split_of(spark, pipeline), kind_of(pipeline)
    none = spark.createDataFrame([], split.schema)
    with pytest.raises(Unknown):
        Evaluation.of(kind.flattened(split.finished(none)), none)


@pytest.mark.parametrize(
    ("measure", "values"),
    [
        ("sum(cents)", {"cents": [2**62, 2**62, 5]}),
        ("sum(cents) + 9", {"cents": [2**62, 2**62 - 5]}),
        ("sum(fare) / sum(tip)", {"fare": [1.0], "tip": [0.0]}),
    ],
)
def test_what_goes_wrong_is_sparks_to_say(spark: SparkSession, measure: str, values: dict[str, list[Any]]) -> None:
    (count,) = {len(column) for column in values.values()}
    rows = [{"id": at, "zone": 1, "at": T0, **{name: values[name][at] for name in values}} for at in range(count)]
    found, expected = both_ways(spark, declared(f"{measure} AS m"), rows)
    assert found is None
    with pytest.raises(PySparkException):
        expected.collect()


def test_a_division_by_nothing_at_all(spark: SparkSession) -> None:
    rows = [{"id": 1, "zone": 1, "at": T0, "tip": 0.0}, {"id": 2, "zone": 2, "at": T0, "fare": math.inf, "tip": 2.0}]
    found, expected = both_ways(spark, declared("sum(fare) / sum(tip) AS m"), rows)
    assert found is not None
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.toArrow().to_pylist()))
