"""`tally check` runs each definition over empty frames, and says at the author's line what breaks its contract."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import world
from checks.refusal import GROUPED, refused
from definitions import edit, line_of, write
from pyspark.sql import SparkSession

from tally.base.errors import DefinitionError
from tally.base.settings import REPO
from tally.catalog.load import load
from tally.checks.definition import check, check_all, forbidden_actions


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
        (f'{GROUPED}.agg(F.sum("fare").alias("State"))', "function", "Tally uses itself"),
        (f'{GROUPED}.agg(F.sum("fare").alias("Window_End"))', "function", "Tally uses itself"),
        (f'{GROUPED}.agg(F.sum("fare").alias("x"), F.max("fare").alias("X"))', "function", "twice"),
        (f'{GROUPED}.agg(F.sum("fare"))', "function", "'sum(fare)' cannot name"),
        (f'{GROUPED}.agg(F.sum("fare").alias("the cost"))', "function", "'the cost' cannot name"),
        (f'{GROUPED}.agg(F.struct(F.sum("fare").alias("a b")).alias("x"))', "function", "'a b' cannot name"),
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


def test_what_other_threads_do_meanwhile_is_theirs(spark: SparkSession, tmp_path: Path) -> None:
    """A stream's micro-batch collects while another pipeline of its driver is looked at."""
    pipeline = load(write(tmp_path)).pipelines["demand"]
    with ThreadPoolExecutor(1) as other, forbidden_actions(pipeline):
        with pytest.raises(DefinitionError, match="the function acts"):
            spark.range(3).count()
        assert other.submit(lambda: spark.range(3).count()).result() == 3
    assert spark.range(3).count() == 3


def test_one_bad_definition_does_not_hide_another(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, body='rides.groupBy("window").agg(F.sum("fare").alias("cost"))')
    good = (write(tmp_path / "x") / "pipelines" / "demand.py").read_text().replace("def demand", "def supply")
    (tmp_path / "pipelines" / "supply.py").write_text(good)
    found = check_all(load(tmp_path))
    assert len(found["demand"]) == 1 and found["supply"] == []


@pytest.mark.parametrize(
    ("window", "having"),
    [
        ('tumbling("1 minute")', ".where('cost > 1')"),
        ('hopping("2 minutes", by="1 minute")', ".filter(F.col('zone') > 1)"),
        ('tumbling("1 minute")', ".dropna()"),
    ],
)
def test_a_filter_above_the_aggregate_is_refused_where_the_stream_corrects_itself(
    spark: SparkSession, tmp_path: Path, window: str, having: str
) -> None:
    body = f'{GROUPED}.agg(F.sum("id").alias("cost")){having}'
    error = refused(spark, write(tmp_path, window=window, body=body))
    assert "never takes a row back" in error.message and "before groupBy" in (error.cure or "")


def test_a_session_may_filter_what_it_has_aggregated(spark: SparkSession, tmp_path: Path) -> None:
    body = f'{GROUPED}.agg(F.count("*").alias("n")).where("n > 1")'
    assert check(spark, load(write(tmp_path, window='session("1 minute")', body=body)).pipelines["demand"])


@pytest.mark.parametrize(
    "column",
    [
        'F.udf(lambda a: a, "double").asNondeterministic()("fare")',
        'F.expr("fare + rand(1)")',
        'F.expr("current_user()")',
        'F.lit("now").cast("timestamp")',
        'F.lit(" Now UTC").cast("timestamp")',
        'F.to_date(F.lit("today"))',
        'F.to_timestamp(F.concat(F.lit("yester"), F.lit("day")))',
        'F.concat(F.lit("to"), F.lit("morrow")).try_cast("date")',
        "F.expr(\"reflect('java.util.UUID', 'randomUUID')\")",
    ],
)
@pytest.mark.parametrize("place", ["below", "above"])
def test_what_is_another_value_each_time_is_refused_wherever_it_stands(
    spark: SparkSession, tmp_path: Path, column: str, place: str
) -> None:
    below, above = (f'.withColumn("x", {column})', "") if place == "below" else ("", f'.withColumn("x", {column})')
    made = f'rides{below}.groupBy("window", "zone").agg(F.max("fare").alias("fare")){above}'
    assert "reads the clock or chance" in refused(spark, write(tmp_path, body=made)).message


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ('rides.groupBy("window", "zone", "id").count()', "key", "groups by 'id' too"),
        ('rides.groupBy("window", "zone", F.upper(F.col("id").cast("string")).alias("u")).count()', "key", "'u' too"),
        (
            'rides.groupBy("window", "zone", "id").agg(F.count("*").alias("n")).select("window", "zone", "n")',
            "key",
            "groups by 'id' too",
        ),
        ('rides.cube("window", "zone").count()', "window", "window"),
        ('rides.groupBy("window").agg(F.max("zone").alias("zone"))', "key", "'zone' is not what"),
        ('rides.groupBy("window", "zone").count().withColumn("zone", F.col("zone") % 2)', "key", "'zone' is not what"),
        ('rides.groupBy(F.window("at", "5 minutes").alias("window"), "zone").count()', "window", "not the one"),
        ('rides.withColumn("window", F.window("at", "5 minutes")).groupBy("window", "zone").count()', "window", "not"),
    ],
)
def test_a_function_groups_by_its_window_and_key_and_by_nothing_else(
    spark: SparkSession, tmp_path: Path, body: str, field: str, says: str
) -> None:
    error = refused(spark, write(tmp_path, body=body))
    assert error.field == field and says in error.message


@pytest.mark.parametrize(
    "body",
    [
        'rides.groupBy("zone", "window").count()',
        'rides.groupBy("window", (F.col("zone") % 3).alias("zone")).count()',
        'rides.withColumnRenamed("zone", "z").groupBy("window", "z").count().withColumnRenamed("z", "zone")',
        'rides.groupBy("window", "zone").count().select("zone", "window", (F.col("count") * 2).alias("n"))',
        'rides.where("fare > 1").groupBy("window", "zone").count()',
    ],
)
def test_the_key_may_have_any_order_and_any_name_on_its_way(spark: SparkSession, tmp_path: Path, body: str) -> None:
    assert check(spark, load(write(tmp_path, body=body)).pipelines["demand"])


@pytest.mark.parametrize(
    "body",
    [
        f"{GROUPED}.count().limit(3)",
        f"{GROUPED}.count().orderBy('zone')",
        f"rides.sample(0.5, 3).{GROUPED[6:]}.count()",
        f"rides.withColumn('r', F.row_number().over(Window.partitionBy('zone').orderBy('at'))).{GROUPED[6:]}.count()",
        f"rides.withColumn('r', F.first('id').over(Window.partitionBy('zone'))).{GROUPED[6:]}.count()",
        f"rides.dropDuplicates(['zone']).{GROUPED[6:]}.count()",
        f"rides.select('zone', 'window').distinct().{GROUPED[6:]}.count().distinct()",
        f"rides.withWatermark('at', '1 day').{GROUPED[6:]}.count()",
        f"rides.mapInPandas(lambda parts: parts, rides.schema).{GROUPED[6:]}.count()",
        f"{GROUPED}.agg(F.array_sort(F.collect_set('id')).alias('i')).withColumn('i', F.explode('i'))",
        f"{GROUPED}.count().union({GROUPED}.count())",
        f"rides.crossJoin(rides.sparkSession.range(2)).{GROUPED[6:]}.count().crossJoin(rides.sparkSession.range(2))",
        f"{GROUPED}.agg(F.expr('max((select 1))'))",
    ],
)
def test_what_depends_on_how_rows_are_cut_is_refused(spark: SparkSession, tmp_path: Path, body: str) -> None:
    folder = write(tmp_path, body=body)
    edit(folder, "from topics import rides", "from pyspark.sql import Window\nfrom topics import rides")
    refused(spark, folder)


def test_a_function_that_counts_its_calls_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path, body=f'{GROUPED}.agg((F.count("*") * Calls().more()).alias("n"))')
    counting = (
        "class Calls:\n    made = [0]\n\n    def more(self):\n        self.made += [1]\n        return len(self.made)"
    )
    edit(folder, "RATE = 2", counting)
    assert "the second time" in refused(spark, folder).message


def test_another_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "zones"))
    folder = write(tmp_path, body=f'rides.join(zones(rides), "id").{GROUPED[6:]}.count()')
    edit(folder, "RATE = 2", f"def zones(rides):\n    return rides.sparkSession.read.parquet('{tmp_path}/zones')")
    with pytest.raises(DefinitionError) as raised:
        load(folder).pipeline("demand")
    assert "sparkSession.read" in raised.value.message
    edit(folder, f"rides.sparkSession.read.parquet('{tmp_path}/zones')", "rides")
    edit(folder, "(zones(rides)", "(zones(rides).select('id')")
    assert load(folder).pipeline("demand")


@pytest.mark.parametrize("folder", ["spark", "faults/catalogue"])
def test_the_catalogues_of_the_repository_are_good(spark: SparkSession, folder: str) -> None:
    assert not any(check_all(load(REPO / folder)).values())


def test_the_catalogue_of_the_two_layers_tests_is_good(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "pipelines" / "demand.py").unlink()
    (tmp_path / "topics.py").write_text(world.TOPICS.format(prefix="", suffix="", unique=', unique="id"'))
    for kind, window in world.WINDOWS.items():
        text = world.TEXTS.get(kind, world.SINGLE).format(name=kind, suffix="", window=window, cheap=world.CHEAP)
        (tmp_path / "pipelines" / f"{kind}.py").write_text(text)
    found = check_all(load(tmp_path))
    assert set(found) == set(world.WINDOWS) and not any(found.values())


@pytest.mark.parametrize(
    "column",
    [
        'F.col("id").cast("string").try_cast("timestamp")',
        'F.to_timestamp(F.col("zone").cast("string"))',
        'F.try_to_timestamp(F.concat(F.col("zone"), F.lit(":30")))',
        'F.array(F.col("id").cast("string")).cast("array<timestamp>")[0]',
        'F.from_json(F.col("id").cast("string"), "t TIMESTAMP")["t"]',
    ],
)
def test_a_time_made_of_text_without_a_format_is_refused_because_its_date_may_be_todays(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    body = f'rides.withColumn("x", {column}).groupBy("window", "zone").agg(F.max("x").alias("x"))'
    error = refused(spark, write(tmp_path, body=body))
    assert "without a format" in error.message and "F.to_timestamp(" in (error.cure or "")


@pytest.mark.parametrize(
    "column",
    [
        'F.try_to_timestamp(F.col("id").cast("string"), F.lit("yyyyMMddHHmm"))',
        'F.to_timestamp(F.lit("2026-01-05 10:00:00"))',
        'F.greatest("at", F.lit("2026-01-05").cast("timestamp"))',
        'F.col("id").cast("string").try_cast("date")',
    ],
)
def test_a_time_that_the_events_alone_decide_is_fine(spark: SparkSession, tmp_path: Path, column: str) -> None:
    body = f'rides.withColumn("x", {column}).groupBy("window", "zone").agg(F.max("x").alias("x"))'
    assert check(spark, load(write(tmp_path, body=body)).pipelines["demand"])


def test_a_constant_that_is_no_time_is_a_fault_of_its_pipeline_and_hides_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, body='rides.where(F.col("at") > F.lit("soon").cast("timestamp")).groupBy("window", "zone").count()')
    good = (write(tmp_path / "x") / "pipelines" / "demand.py").read_text().replace("def demand", "def supply")
    (tmp_path / "pipelines" / "supply.py").write_text(good)
    found = check_all(load(tmp_path))
    assert len(found["demand"]) == 1 and "soon" in found["demand"][0].message and found["supply"] == []


@pytest.mark.parametrize(
    "measure",
    [
        'F.max("fare").cast("string")',
        'F.format_number(F.max("fare"), 2)',
        'F.array_join(F.array_sort(F.collect_list("fare")).cast("array<string>"), ",")',
    ],
)
def test_text_of_a_double_that_was_chosen_among_equal_ones_is_refused(
    spark: SparkSession, tmp_path: Path, measure: str
) -> None:
    error = refused(spark, write(tmp_path, body=f'{GROUPED}.agg(({measure}).alias("x"))'))
    assert "0.0 or -0.0" in error.message and "the number itself" in (error.cure or "")
