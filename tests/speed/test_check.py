"""`tally check` runs each definition over empty frames, and says at the author's line what breaks its contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from definitions import line_of, write
from pyspark.sql import SparkSession

from tally.catalog.load import load
from tally.errors import DefinitionError
from tally.speed.check import check, check_all

GROUPED = 'rides.groupBy("window", "zone")'


def refused(spark: SparkSession, folder: Path) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        check(spark, load(folder).pipelines["demand"])
    assert raised.value.pipeline == "demand" and raised.value.cure
    return raised.value


def test_a_good_definition_gives_its_rows_form(spark: SparkSession, tmp_path: Path) -> None:
    rows = check(spark, load(write(tmp_path)).pipelines["demand"])
    assert rows.columns == ["window_start", "window_end", "zone", "cost"]


def test_an_unknown_column_is_said_with_those_there_are(spark: SparkSession, tmp_path: Path) -> None:
    body = f'{GROUPED}.agg(F.sum("fair").alias("cost"))'
    folder = write(tmp_path, body=body)
    error = refused(spark, folder)
    assert "fair" in error.message and "at, fare, id, window, zone" in (error.cure or "")
    assert error.where == line_of(folder, body)


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ('rides.groupBy("window").agg(F.sum("fare").alias("cost"))', "key", "lacks 'zone'"),
        ('rides.groupBy("zone").agg(F.sum("fare").alias("cost"))', "window", "no `window` column"),
        (f'{GROUPED}.agg(F.sum("fare").alias("_cost"))', "function", "Tally uses itself"),
        (f'{GROUPED}.agg(F.sum("fare").alias("state"))', "function", "Tally uses itself"),
        (f'{GROUPED}.agg(F.sum("fare").alias("x"), F.max("fare").alias("x"))', "function", "twice"),
        ("42", "function", "gives int"),
    ],
)
def test_an_output_that_breaks_the_declaration(
    spark: SparkSession, tmp_path: Path, body: str, field: str, says: str
) -> None:
    folder = write(tmp_path, body=body)
    error = refused(spark, folder)
    assert error.field == field and says in error.message
    assert error.where == line_of(folder, "@pipeline(")


def test_an_action_is_stopped_before_it_starts_a_job(spark: SparkSession, tmp_path: Path) -> None:
    body = f'{GROUPED}.agg(F.sum("fare").alias("cost")).limit(rides.count())'
    folder = write(tmp_path, body=body)
    error = refused(spark, folder)
    assert "acts: .count()" in error.message and error.where == line_of(folder, body)
    assert spark.range(3).count() == 3, "and works again afterwards"


@pytest.mark.parametrize("call", ["current_timestamp()", "now()", "current_date()", "rand()", "uuid()"])
def test_the_clock_and_chance_are_seen_in_sql_text_too(spark: SparkSession, tmp_path: Path, call: str) -> None:
    body = f'{GROUPED}.agg(F.sum("fare").alias("cost")).withColumn("x", F.expr("{call}"))'
    error = refused(spark, write(tmp_path, body=body))
    assert "reads the clock or chance" in error.message
    assert error.where == line_of(tmp_path, "@pipeline(")


def test_one_bad_definition_does_not_hide_another(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, body='rides.groupBy("window").agg(F.sum("fare").alias("cost"))')
    good = (write(tmp_path / "x") / "pipelines" / "demand.py").read_text().replace("def demand", "def supply")
    (tmp_path / "pipelines" / "supply.py").write_text(good)
    found = check_all(load(tmp_path))
    assert len(found["demand"]) == 1 and found["supply"] == []
