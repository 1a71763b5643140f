"""`tally check` runs each definition over empty frames, and says at the author's line what breaks its contract."""

from __future__ import annotations

from pathlib import Path

import pytest
import world
from definitions import edit, line_of, write
from pyspark.sql import SparkSession

from tally.catalog.load import load
from tally.errors import DefinitionError
from tally.settings import REPO
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
        'F.min_by("fare", F.struct("at", "id"))',
        'F.max_by("fare", F.struct("at", F.length(F.col("fare").cast("string"))))',
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


@pytest.mark.parametrize(
    "column",
    [
        'F.udf(lambda a: a, "double").asNondeterministic()("fare")',
        'F.expr("fare + rand(1)")',
        'F.expr("current_user()")',
        'F.lit("now").cast("timestamp")',
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
        'rides.groupBy("window", "zone").count().select(F.col("zone").alias("zone"), "window", F.col("count") * 2)',
        'rides.select("window", F.col("id").alias("zone"), "fare")',
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


def test_a_join_of_a_topic_with_itself_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    on = "F.expr('r.id = q.id and q.at >= r.at and q.at < r.at + interval 5 minutes')"
    body = f'rides.alias("r").join(rides.alias("q").drop("window"), {on}).groupBy("window", "r.zone").count()'
    error = refused(spark, write(tmp_path, body=body))
    assert "joins its topic with itself" in error.message and error.field == "function"


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


JOIN = """
from pyspark.sql import functions as F
from topics import pays, rides

from tally import pipeline, tumbling


@pipeline(reads=[rides, pays], window=tumbling("1 minute"), key="zone", reach="{reach}")
def demand(rides, pays):
    pairs = rides.alias("r").join(pays.alias("p"), F.expr("r.id = p.id{bound}"))
    return pairs.groupBy("window", "r.zone").count()
"""
BOTH = " AND p.at >= r.at - INTERVAL 2 MINUTES AND p.at < r.at + INTERVAL 5 MINUTES"


@pytest.mark.parametrize(
    ("reach", "bound", "says"),
    [
        ("5 minutes", BOTH, ""),
        ("1 hour", BOTH, ""),
        ("4 minutes", BOTH, "up to 299.999 seconds apart"),
        ("5 minutes", " AND p.at >= r.at", "does not say how far"),
        ("5 minutes", "", "does not say how far"),
    ],
)
def test_a_joins_condition_keeps_to_its_reach(
    spark: SparkSession, tmp_path: Path, reach: str, bound: str, says: str
) -> None:
    folder = write(tmp_path)
    text = (folder / "topics.py").read_text()
    (folder / "topics.py").write_text(text + text.split("\n\n", 1)[1].replace("rides", "pays"))
    (folder / "pipelines" / "demand.py").write_text(JOIN.format(reach=reach, bound=bound))
    if not says:
        assert check(spark, load(folder).pipelines["demand"])
        return
    error = refused(spark, folder)
    assert says in error.message and error.field == "reach"


@pytest.mark.parametrize("folder", ["spark", "faults/catalogue"])
def test_the_catalogues_of_the_repository_are_good(spark: SparkSession, folder: str) -> None:
    assert not any(check_all(load(REPO / folder)).values())


def test_the_catalogue_of_the_two_layers_tests_is_good(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "pipelines" / "demand.py").unlink()
    (tmp_path / "topics.py").write_text(world.TOPICS.format(prefix="", suffix="", unique=', unique="id"'))
    for kind, window in world.WINDOWS.items():
        text = world.JOIN if kind == "join" else world.SINGLE
        (tmp_path / "pipelines" / f"{kind}.py").write_text(text.format(name=kind, suffix="", window=window))
    found = check_all(load(tmp_path))
    assert set(found) == set(world.WINDOWS) and not any(found.values())
