"""A pipeline of single events: each gives one row at most, and its id tells that row from all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.refusal import refused
from definitions import edit, line_of, write
from pyspark.sql import SparkSession

from tally.base.errors import DefinitionError
from tally.catalog.load import load
from tally.checks.definition import check
from tally.checks.prove import prove

SELECTED = 'rides.select("window", "id", taxed("fare").alias("cost"))'


def single(folder: Path, body: str = SELECTED, slot: str = "1 minute", **topic: str) -> Path:
    """A catalogue with one pipeline of single events."""
    write(folder, window=f'events("{slot}")', body=body)
    edit(folder, "import hopping,", "import events, hopping,")
    edit(folder, 'key="zone"', 'key="id"')
    edit(folder, 'event_time="at"', topic.get("time", 'event_time="at", unique="id"'), file="topics.py")
    return folder


@pytest.mark.parametrize(
    "body",
    [
        SELECTED,
        'rides.where("fare > 1").select("window", "id", "zone")',
        'rides.select("*").withColumn("f", F.col("fare") * 2).drop("at").where("f > 1")',
        'rides.select(F.col("id").alias("ride"), "window", "id")',
        'rides.repartition(3).select("window", "id", F.udf(lambda z: z, "int")("zone").alias("z"))',
    ],
)
def test_rows_out_for_rows_in_are_fine(spark: SparkSession, tmp_path: Path, body: str) -> None:
    rows = check(spark, load(single(tmp_path, body)).pipelines["demand"])
    assert rows.columns[:3] == ["window_start", "window_end", "id"]


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ('rides.groupBy("window", "id").count()', "function", "Aggregate does not give one row for one event"),
        ('rides.unionByName(rides).select("window", "id")', "function", "Union does not"),
        (
            'rides.select("window", "id", F.explode(F.array("zone", "fare")).alias("x"))',
            "function",
            "Generate does not",
        ),
        (
            'rides.alias("a").join(rides.alias("b"), F.expr("a.id = b.id")).select("a.window", "a.id")',
            "function",
            "Join",
        ),
        ('rides.select("window", (F.col("id") % 7).alias("id"))', "key", "lacks the unique id of rides"),
        ('rides.select("window", F.col("zone").alias("id"))', "key", "lacks the unique id of rides"),
        ('rides.select(F.window("at", "1 hour").alias("window"), "id")', "window", "not the slot that it is given"),
        ('rides.select("id", "fare")', "window", "no `window` column"),
        ('rides.limit(3).select("window", "id")', "function", "Limit"),
        ('rides.dropDuplicates(["id"]).select("window", "id")', "function", "drops duplicates itself"),
    ],
)
def test_what_makes_more_or_less_of_an_event_than_a_row_is_refused(
    spark: SparkSession, tmp_path: Path, body: str, field: str, says: str
) -> None:
    error = refused(spark, single(tmp_path, body))
    assert error.field == field and says in error.message


@pytest.mark.parametrize(
    ("topic", "slot", "field", "says", "cure"),
    [
        ('event_time="at"', "1 minute", "window", "no unique id", "unique="),
        ('event_time="at", unique="id"', "61 seconds", "slot", "an id may come twice", 'events("1 minute")'),
        ('event_time="at", unique="id"', "0 seconds", "slot", "longer than nothing", "1 minute"),
    ],
)
def test_a_declaration_that_would_not_tell_rows_apart_is_refused_on_load(
    tmp_path: Path, topic: str, slot: str, field: str, says: str, cure: str
) -> None:
    fault = load(single(tmp_path, slot=slot, time=topic)).broken["demand"]
    assert isinstance(fault, DefinitionError)
    assert fault.field == field and says in fault.message and cure in (fault.cure or "")
    assert fault.where and fault.where.startswith(line_of(tmp_path, "@pipeline(").rsplit(":", 1)[0])


@pytest.mark.parametrize("body", ["rides.select('*')", 'rides.select("window", F.col("id").alias("zone"), "fare")'])
def test_a_window_whose_function_aggregates_nothing_is_refused_with_both_cures(
    spark: SparkSession, tmp_path: Path, body: str
) -> None:
    error = refused(spark, write(tmp_path, body=body))
    assert "several rows of one key" in error.message
    assert 'groupBy("window", "zone")' in (error.cure or "") and "events(" in (error.cure or "")


def test_both_layers_give_the_same_rows_for_random_events(spark: SparkSession, tmp_path: Path) -> None:
    body = 'rides.where("fare > 0.15").select("window", "id", (F.col("fare") / 3).alias("third"), "zone")'
    proof = prove(spark, load(single(tmp_path, body)).pipelines["demand"], 7)
    assert proof.events > 240 and proof.rows > 60
