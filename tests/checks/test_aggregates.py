"""An aggregate follows from its events alone, in whatever order they come, and both layers can be compared by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.refusal import GROUPED, refused
from definitions import edit, line_of, write
from pyspark.sql import SparkSession

from tally.catalog.load import load
from tally.checks.definition import check


@pytest.mark.parametrize(
    "measure",
    [
        'F.first("fare")',
        'F.last("fare", True)',
        'F.any_value("fare")',
        'F.first_value("fare")',
        'F.expr("first(fare)")',
        'F.expr("first(fare) filter (where fare > 1)")',
        'F.round(F.expr("last_value(id)"))',
        'F.collect_list("fare")',
        'F.array_agg("fare")',
        'F.collect_set("fare")',
        'F.concat_ws(",", F.collect_set(F.col("fare").cast("string")))',
        'F.reverse(F.collect_list("fare"))',
        'F.array_sort(F.collect_list("id"), lambda a, b: F.lit(0))',
        'F.listagg(F.col("id").cast("string"))',
        "F.expr(\"string_agg(string(id), ',') within group (order by zone)\")",
        'F.mode("fare")',
        'F.approx_percentile("fare", 0.5)',
        'F.percentile_approx("fare", 0.5)',
        'F.histogram_numeric("fare", F.lit(3))',
        'F.hll_sketch_agg("id")',
        'F.expr("kll_sketch_agg_bigint(id)")',
        'F.max_by("fare", "at")',
        'F.try_sum("id")',
        'F.try_avg(F.col("id").cast("decimal(38,0)"))',
        'F.min_by("fare", F.struct("at", "id"))',
        'F.max_by("fare", F.struct("at", F.length(F.col("fare").cast("string"))))',
        # 0.0 and -0.0 are equal in an order, and what is made of them is not.
        'F.max_by(F.col("fare").cast("string"), F.struct("at", "fare"))',
        'F.min_by(F.struct("id", F.atan2("fare", F.lit(-1.0))), F.struct("id", "fare"))',
        'F.max_by(F.to_json(F.struct("fare")), F.struct("at", F.array("fare"), "fare"))',
        "F.expr(\"listagg(string(fare), ',') within group (order by fare)\")",
        'F.length(F.max(F.collate(F.col("fare").cast("string"), "UTF8_LCASE")))',
    ],
)
def test_an_aggregate_that_depends_on_the_order_of_events_is_refused(
    spark: SparkSession, tmp_path: Path, measure: str
) -> None:
    body = f'{GROUPED}.agg(({measure}).alias("x"))'
    folder = write(tmp_path, body=body)
    error = refused(spark, folder)
    assert "depends on the order" in error.message
    assert error.where == line_of(folder, body)


@pytest.mark.parametrize(
    "measure",
    [
        'F.max_by("fare", F.struct("at", "fare"))',
        'F.max_by(F.struct("fare", "id"), F.struct("at", "id", "fare"))',
        'F.max_by(F.col("fare") * 2, F.struct("at", "fare"))',
        "F.expr(\"min_by(fare, named_struct('a', at, 'f', fare))\")",
        'F.max_by(F.floor(F.col("fare")), "fare")',
        'F.max_by(F.when(F.col("fare") > 0, F.col("id")).otherwise(F.floor("fare")), F.struct("id", "fare"))',
        'F.max_by(F.col("fare").cast("string"), F.col("fare").cast("string"))',
        'F.array_sort(F.collect_list("fare"))',
        'F.sort_array(F.collect_set("fare"), False)',
        'F.size(F.collect_set("id"))',
        "F.expr(\"listagg(string(id), ',') within group (order by string(id))\")",
        'F.approx_count_distinct("id")',
        'F.mode("fare", True)',
        'F.percentile("fare", 0.5)',
        'F.median("fare")',
        'F.avg("fare")',
        'F.stddev("fare") / F.sum("fare")',
        'F.coalesce(F.sum("fare"), F.lit(0.0)) * 100 - F.count("*")',
        'F.round(F.sum(F.col("fare").cast("decimal(18,6)")), 2)',
        'F.round(F.max("fare"), 1)',
        'F.avg("id").cast("int")',
        'F.count_if(F.col("fare") > 1)',
        'F.expr("sum(fare) filter (where fare > 1)")',
    ],
)
def test_an_aggregate_that_the_events_alone_decide_is_fine(spark: SparkSession, tmp_path: Path, measure: str) -> None:
    body = f'{GROUPED}.agg(({measure}).alias("x"))'
    assert check(spark, load(write(tmp_path, body=body)).pipelines["demand"])


def test_a_unique_column_makes_any_order_a_total_one(spark: SparkSession, tmp_path: Path) -> None:
    body = f'{GROUPED}.agg(F.max_by("fare", F.struct("at", "id")).alias("x"))'
    folder = write(tmp_path, body=body)
    assert "depends on the order" in refused(spark, folder).message
    edit(folder, 'event_time="at"', 'event_time="at", unique="id"', file="topics.py")
    assert check(spark, load(folder).pipelines["demand"])


def test_an_id_comes_again_in_a_window_that_is_longer_than_the_lateness(spark: SparkSession, tmp_path: Path) -> None:
    """Copies further apart are two events: only together with the event time does the id tell them apart."""
    body = f'{GROUPED}.agg(F.max_by("fare", "id").alias("x"))'
    folder = write(tmp_path, body=body)
    edit(folder, 'event_time="at"', 'event_time="at", unique="id"', file="topics.py")
    assert check(spark, load(folder).pipelines["demand"])
    for window in ('tumbling("2 minutes")', 'session("30 seconds")'):
        write(folder, body=body, window=window)
        edit(folder, 'event_time="at"', 'event_time="at", unique="id"', file="topics.py")
        assert "depends on the order" in refused(spark, folder).message
        edit(folder, '"id")', 'F.struct("id", "at"))')
        assert check(spark, load(folder).pipelines["demand"])


@pytest.mark.parametrize(
    "measure",
    [
        'F.round(F.sum("fare"), 2)',
        'F.floor(F.avg("fare"))',
        'F.sum("fare").cast("decimal(18,2)")',
        'F.sum("fare").cast("string")',
        'F.sum("fare") > 10',
        'F.when(F.sum("fare") > 10, 1).otherwise(0)',
        'F.struct(F.sum("fare").alias("a"))',
        'F.array(F.stddev("id"))',
        'F.sum("fare").cast("float")',
    ],
)
def test_a_step_made_of_a_sum_of_doubles_is_refused(spark: SparkSession, tmp_path: Path, measure: str) -> None:
    folder = write(tmp_path, body=f'{GROUPED}.agg(({measure}).alias("x"))')
    error = refused(spark, folder)
    assert "last digits depend on the order" in error.message and "DECIMAL" in (error.cure or "")
    write(folder, body=f'{GROUPED}.agg(({measure.replace("fare", "id")}).alias("x"))')
    if "stddev" not in measure:
        assert check(spark, load(folder).pipelines["demand"])


def test_a_step_that_is_made_in_a_later_select_is_refused_too(spark: SparkSession, tmp_path: Path) -> None:
    body = f'{GROUPED}.agg(F.sum("fare").alias("s")).withColumn("t", F.col("s") * 2).withColumn("x", F.floor("t"))'
    assert "last digits depend on the order" in refused(spark, write(tmp_path, body=body)).message


@pytest.mark.parametrize(
    ("measure", "says"),
    [
        ('F.create_map(F.lit("a"), F.sum("id"))', "a MAP"),
        ('F.array(F.struct(F.create_map(F.lit("a"), F.sum("id"))))', "a MAP"),
        ('F.parse_json(F.lit("1"))', "a VARIANT"),
        ('F.max("at") - F.min("at")', "a INTERVAL"),
        ("F.lit(None)", "a VOID"),
    ],
)
def test_a_measure_that_cannot_be_compared_is_refused(
    spark: SparkSession, tmp_path: Path, measure: str, says: str
) -> None:
    error = refused(spark, write(tmp_path, body=f'{GROUPED}.agg(F.count("*").alias("n"), ({measure}).alias("x"))'))
    assert says in error.message and "'x'" in error.message
