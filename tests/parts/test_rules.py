"""What adds up from parts, and of all else why it does not, with the author's line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from parts.declared import EVENTS, of, rows_of, split_of
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from tally.catalog.declare import events, pipeline
from tally.catalog.spec import Pipeline
from tally.parts import Function, Refusal

GROUP = ("window", "zone")
MADE = {
    "name": "elt(int(id % 4) + 1, 'a', 'B', '', 'é')", "fare": "double(id) / 4 - 3", "tip": "float(id % 5)",
    "cents": "(id - 20) * 10000000000000000", "small": "smallint(id - 20)", "price": "decimal(id) / 8",
    "wide": "cast(id * 1000000007 as decimal(20,3))", "paid": "id % 3 = 1",
    "day": "date_add(date'2026-01-01', int(id))", "zone": "int(id % 2)", "at": "timestamp_seconds(1794010020 + id * 5)",
}  # fmt: skip


@F.udf(DoubleType())
def doubled(fare: float | None) -> float | None:
    return None if fare is None else fare * 2


@F.pandas_udf(DoubleType())
def centred(fare: pd.Series) -> pd.Series:
    return fare - fare.mean()


ACCEPTED = [
    "count(*)", "count(1)", "count(fare, name)", "count_if(fare > 1)", "sum(small)", "sum(cents)", "sum(price)",
    "sum(wide)", "sum(fare)", "sum(tip)", "avg(cents)", "avg(price)", "avg(fare)", "min(name)",
    "max(cast(at as timestamp_ntz))",
    "min(cast(name as binary))", "max(struct(at, id))", "bool_and(paid)", "every(paid)", "bool_or(paid)", "some(paid)",
    "stddev(fare)", "stddev_pop(fare)", "variance(cents)", "var_pop(price)", "regr_count(fare, tip)",
    "min_by(name, id)", "max_by(name, struct(at, name))", "try_sum(fare)", "sum(cents) filter (where paid)",
    "count(*) filter (where fare > 1)", "round(sum(price) / count(*), 2)", "coalesce(max(fare), 0)",
    "sum(cents) + nullif(count(*), 3)", "sum(if(paid, cents, 0))", "1",
]  # fmt: skip


@pytest.mark.parametrize("measure", ACCEPTED)
def test_a_measure_that_adds_up(spark: SparkSession, measure: str) -> None:
    split = split_of(spark, of(lambda rows: rows.groupBy(*GROUP).agg(F.expr(measure).alias("m"))))
    names = [field.name for field in split.schema.fields]
    assert names == [f"g{at}" for at in range(2)] + [f"b{at}" for at in range(len(names) - 2)]


SHAPES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "filter below": lambda rows: rows.where("fare > 1").groupBy(*GROUP).count(),
    "select below": lambda rows: (
        rows.select("window", F.col("zone"), (F.col("fare") * 2).alias("x")).groupBy(*GROUP).max("x")
    ),
    "alias below": lambda rows: rows.alias("r").groupBy("r.window", "r.zone").count(),
    "udf below": lambda rows: rows.withColumn("x", doubled("fare")).groupBy(*GROUP).agg(F.sum("x").alias("x")),
    "udf inside": lambda rows: rows.groupBy(*GROUP).agg(F.max(doubled("fare")).alias("x")),
    "udf above": lambda rows: rows.groupBy(*GROUP).agg(F.max("fare").alias("x")).withColumn("y", doubled("x")),
    "having": lambda rows: rows.groupBy(*GROUP).count().where("count > 1"),
    "select above": lambda rows: rows.groupBy(*GROUP).agg(F.avg("fare").alias("x")).withColumn("y", F.col("x") * 2),
    "key made in the group": lambda rows: rows.groupBy("window", (F.col("zone") % 10).alias("zone")).count(),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_function_that_adds_up(spark: SparkSession, name: str) -> None:
    gives_the_same(spark, of(SHAPES[name]))


def test_each_measure_comes_out_as_the_functions_own(spark: SparkSession) -> None:
    measures = [F.expr(measure).alias(f"m{at}") for at, measure in enumerate(ACCEPTED)]
    gives_the_same(spark, of(lambda rows: rows.groupBy(*GROUP).agg(*measures)))


def gives_the_same(spark: SparkSession, declared: Pipeline) -> None:
    """Over some rows whose floating sums are exact, some of whose values are null, in three pieces."""
    made = [F.when(F.col("id") % at != 0, F.expr(one)).alias(name) for at, (name, one) in enumerate(MADE.items(), 2)]
    rows = spark.range(40).select(F.when(F.col("id") >= 0, F.col("id")).alias("id"), *made)  # any column may be null
    rows = rows.select(*(F.col(column.name).cast(column.type).alias(column.name) for column in EVENTS.schema))
    pieces = [rows.where(F.col("id") % 3 == at) for at in range(3)]
    direct, combined = rows_of(spark, declared, rows, pieces)
    assert combined.schema == direct.schema
    one, two = (sorted(map(told, frame.collect())) for frame in (direct, combined))
    assert one == two and one


def told(row: Row) -> str:
    """A row with ten digits of its floating numbers."""
    return str({name: f"{value:.10g}" if isinstance(value, float) else value for name, value in row.asDict().items()})


def agg(measure: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.groupBy(*GROUP).agg(F.expr(measure).alias("m"))


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy(*GROUP).count()


def ranked(rows: DataFrame) -> DataFrame:
    return rows.withColumn("n", F.row_number().over(Window.partitionBy("zone").orderBy("at")))


def in_pandas(rows: DataFrame) -> DataFrame:
    return rows.select("window", "zone").mapInPandas(
        lambda frames: frames, "window STRUCT<start: TIMESTAMP, end: TIMESTAMP>, zone INT"
    )


REFUSED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "distinct": (agg("count(distinct name)"), "takes each value once"),
    "sum of distinct": (agg("sum(distinct cents)"), "takes each value once"),
    "sketch": (agg("approx_count_distinct(name)"), "is a sketch"),
    "quantile": (agg("approx_percentile(fare, 0.5)"), "is a sketch"),
    "median": (agg("median(fare)"), "keeps every value"),
    "percentile": (agg("percentile(fare, 0.5)"), "keeps every value"),
    "list": (agg("array_sort(collect_list(name))"), "keeps every value"),
    "set": (agg("array_sort(collect_set(name))"), "keeps every value"),
    "first": (agg("first(name)"), "whichever event comes first"),
    "any": (agg("any_value(name)"), "whichever event comes first"),
    "skewness": (agg("skewness(fare)"), "no way here to add up skewness(fare)"),
    "correlation": (agg("corr(fare, tip)"), "no way here"),
    "product": (agg("bit_xor(id)"), "no way here"),
    "tie": (agg("max_by(name, at)"), "takes whichever comes first"),
    "sum of intervals": (agg("sum(at - timestamp'2026-01-01')"), "only numbers are added up"),
    "average of intervals": (agg("avg(at - timestamp'2026-01-01')"), "only numbers are added up"),
    "least interval": (agg("min(at - timestamp'2026-01-01')"), "INTERVAL"),
    "sum that is null": (agg("try_sum(cents)"), "on its way"),
    "odd name": (agg("max(named_struct('a b', id))"), "cannot name a table's column"),
    "a name twice": (agg("max(struct(id as a, fare as A))"), "is twice in a struct"),
    "chance": (lambda rows: counted(rows.where("rand() < 0.5")), "another value each time"),
    "clock": (lambda rows: counted(rows.where("at < current_timestamp()")), "another value each time"),
    "udf of columns": (lambda rows: counted(rows.where(centred("fare") > 0)), "a udf over whole columns"),
    "generate": (lambda rows: counted(rows.select(*GROUP, F.explode(F.array("id")))), "several rows of one event"),
    "rollup": (lambda rows: rows.rollup(*GROUP).count(), "groups in several ways"),
    "duplicates": (lambda rows: counted(rows.dropDuplicates(["name"])), "drops duplicates itself"),
    "distinct rows": (lambda rows: counted(rows.distinct()), "drops duplicates itself"),
    "window function": (lambda rows: counted(ranked(rows).where("n = 1")), "Window below its aggregation"),
    "limit": (lambda rows: counted(rows.limit(3)), "a limit below its aggregation"),
    "sample": (lambda rows: counted(rows.sample(0.5)), "Sample below its aggregation"),
    "map in pandas": (lambda rows: counted(in_pandas(rows)), "below its aggregation"),
    "union": (lambda rows: counted(rows.union(rows)), "takes its events several times"),
    "self-join": (lambda rows: counted(rows.join(rows.select("id"), "id")), "joins rows"),
    "twice": (lambda rows: counted(rows.groupBy("window", "zone", "name").count()), "aggregates twice"),
    "join above": (lambda rows: counted(rows).join(counted(rows).select("zone"), "zone"), "rows meet above"),
    "order above": (lambda rows: counted(rows).orderBy("zone"), "an order stands above"),
    "limit above": (lambda rows: counted(rows).limit(3), "a limit stands above"),
    "window above": (lambda rows: ranked(rows.groupBy(*GROUP).agg(F.max("at").alias("at"))), "Window stands above"),
    "subquery": (lambda rows: counted(rows.where(F.expr("fare > (SELECT 1)"))), "asks a subquery"),
    "nothing": (lambda rows: rows.select(*GROUP), "aggregates nothing"),
    "no group": (lambda rows: rows.agg(F.max("window").alias("window"), F.max("zone")), "groups by nothing"),
    "collation": (lambda rows: rows.groupBy(*GROUP, F.collate("name", "UTF8_LCASE")).count(), "it groups by a STRING"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_function_that_needs_a_query_of_its_own(spark: SparkSession, name: str) -> None:
    function, reason = REFUSED[name]
    found = Function(spark, of(function)).in_two
    assert isinstance(found, Refusal)
    assert reason in found.reason, found.reason
    assert found.where.startswith(__file__.rsplit("/", 1)[0])


def test_single_events_need_a_query_of_their_own(spark: SparkSession) -> None:
    @pipeline(reads=EVENTS, window=events("1 minute"), key="id")
    def rows(rides: DataFrame) -> DataFrame:
        return rides.select("window", "id")

    found = Function(spark, rows).in_two
    assert isinstance(found, Refusal) and "there is nothing to add up" in found.reason


def test_without_ansi_mode_nothing_is_combined(spark: SparkSession) -> None:
    """A sum that outgrows its type is null there, as one of no values is in parts."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        found = Function(spark, of(agg("sum(wide)"))).in_two
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert isinstance(found, Refusal) and "ANSI" in found.reason


def test_a_refusal_has_the_line_of_the_expression(spark: SparkSession) -> None:
    def function(rows: DataFrame) -> DataFrame:
        return rows.groupBy(*GROUP).agg(
            F.count("*").alias("n"),
            F.first("name").alias("f"),  # here
        )

    found = Function(spark, of(function)).in_two
    lines = Path(__file__).read_text().splitlines()
    assert isinstance(found, Refusal)
    assert lines[int(found.where.rsplit(":", 1)[1]) - 1].endswith("# here")
