"""Which pipelines of the catalogue can be combined from parts, and why the others need a query of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from definitions import write
from parts.declared import of, rows_of
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tally.base.settings import REPO
from tally.catalog.load import load
from tally.catalog.spec import Pipeline
from tally.checks.sample import sample
from tally.kinds import kind_of
from tally.parts import Function, Refusal

PATHS = {
    "vendor_trips": None,
    "zone_demand": None,
    "cab_shifts": "its windows are sessions: an event that comes later can make one of two",
    "paid_rides": "it joins topics: an event meets others that come in other micro-batches",
}


@pytest.mark.parametrize("name", PATHS)
def test_the_path_of_each_pipeline_of_the_demo(spark: SparkSession, name: str) -> None:
    found = Function(spark, load(REPO / "spark").pipelines[name]).in_two
    assert (found.reason if isinstance(found, Refusal) else None) == PATHS[name]


def test_no_pipeline_of_the_demo_is_left_out() -> None:
    assert load(REPO / "spark").pipelines.keys() == PATHS.keys()


def windowed(path: Path) -> Iterator[tuple[Path, str]]:
    """The pipelines of a catalogue that are of one topic, in windows of the clock."""
    for name, declared in sorted(load(path).pipelines.items()):
        if kind_of(declared).alone is None:
            yield path, name


CATALOGUES = [REPO / "spark", REPO / "faults" / "catalogue"]


@pytest.mark.parametrize(("path", "name"), [pair for one in CATALOGUES for pair in windowed(one)])
def test_parts_of_random_events_give_a_pipelines_rows(spark: SparkSession, path: Path, name: str) -> None:
    agrees(spark, load(path).pipelines[name])


@pytest.mark.parametrize("window", ['tumbling("1 minute")', 'hopping("3 minutes", by="1 minute")'])
def test_parts_of_random_events_give_a_definitions_rows(spark: SparkSession, tmp_path: Path, window: str) -> None:
    agrees(spark, load(write(tmp_path, window=window)).pipelines["demand"])


def agrees(spark: SparkSession, declared: Pipeline) -> None:
    (topic,) = declared.reads
    schema = StructType.fromDDL(topic.ddl)
    drawn = sample(declared, [schema], 7)
    chunks = [[tuple(row[field.name] for field in schema.fields) for row in chunk] for chunk in drawn.topics[0]]
    pieces = [spark.createDataFrame(chunk, schema) for chunk in chunks]
    whole = spark.createDataFrame([row for chunk in chunks for row in chunk], schema)
    direct, combined = rows_of(spark, declared, whole, pieces)
    assert combined.schema == direct.schema
    key = ("window", *declared.key)
    one, two = ({repr([row[name] for name in key]): row for row in frame.collect()} for frame in (direct, combined))
    assert one and one.keys() == two.keys()
    for place, row in one.items():
        for name, value in row.asDict().items():
            close = isinstance(value, float) and abs(value - two[place][name]) <= 2**-52 * 240 * drawn.weight
            assert close or value == two[place][name], (place, name)


def test_a_window_that_is_not_seen_among_the_groups_is_no_part(spark: SparkSession) -> None:
    renamed = of(
        lambda rows: (
            rows.withColumnRenamed("window", "w")
            .groupBy("w", "zone")
            .agg(F.count("*").alias("n"))
            .withColumnRenamed("w", "window")
        )
    )
    found = Function(spark, renamed).in_two
    assert isinstance(found, Refusal) and "none of its groups is seen to be its window" in found.reason
