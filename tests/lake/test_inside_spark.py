"""What is taken from inside Spark's own classes still means what it did; a new version that changes it fails here."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.lake import inside_spark
from tally.lake.inside_spark import Bound, Template


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 2, "a"), (1, 3, None), (2, 5, "b")], "k INT, n BIGINT, t STRING")


def aggregate(out: DataFrame) -> inside_spark.Aggregation:
    spark = out.sparkSession
    return inside_spark.aggregation(spark, inside_spark.replaced(spark, inside_spark.plan_of(out)))


def test_a_plan_is_a_frame_again(spark: SparkSession, rows: DataFrame) -> None:
    plan = inside_spark.plan_of(rows.where("n > 2").select("k"))
    assert inside_spark.frame_of(plan, spark).collect() == [(1,), (2,)]


def test_an_expression_is_a_column_of_its_own_plan(spark: SparkSession, rows: DataFrame) -> None:
    (made,) = inside_spark.items(inside_spark.plan_of(rows.select(F.col("n") + 1)).expressions())
    column = inside_spark.column_of(spark, made.child())
    assert [row[0] for row in rows.select(column).collect()] == [3, 4, 6]


def test_functions_that_are_defined_by_others_are_replaced(rows: DataFrame) -> None:
    out = rows.groupBy("k").agg(
        F.count_if(F.col("n") > 2), F.bool_and(F.col("n") > 2), F.bool_or(F.col("n") > 2), F.regr_count("n", "n")
    )
    assert [one.kind for one in aggregate(out).measures] == ["Count", "Min", "Max", "Count"]


def test_an_aggregation_is_taken_apart(rows: DataFrame) -> None:
    out = rows.groupBy("k", F.length("t").alias("l")).agg(
        (F.sum("n") / F.count("*")).alias("mean"), F.expr("sum(n) FILTER (WHERE k = 1)").alias("ones"), F.sum("n")
    )
    apart = aggregate(out)
    assert str(apart.groups[0].name()) == "k" and len(apart.groups) == 2
    assert [(one.kind, one.filter is not None) for one in apart.measures] == [
        ("Sum", False), ("Count", False), ("Sum", True)
    ]  # fmt: skip
    assert [str(one.name()) for one in apart.results] == ["k", "l", "mean", "ones", "sum(n)"]
    assert apart.below.fastEquals(inside_spark.plan_of(rows))


@pytest.mark.parametrize(
    ("measure", "kind"),
    [
        ("sum(cast(n as decimal(8,2)))", "Sum of UnscaledValue"),
        ("sum(cast(n as decimal(9,2)))", "Sum"),
        ("avg(cast(n as decimal(11,2)))", "Average of UnscaledValue"),
        ("avg(cast(n as decimal(12,2)))", "Average"),
    ],
)
def test_decimals_of_few_digits_are_taken_without_their_point(rows: DataFrame, measure: str, kind: str) -> None:
    out = rows.groupBy("k").agg(F.expr(measure))
    (one,) = aggregate(out).measures
    assert one.kind == kind
    assert [str(given.dataType().typeName())[:7] for given in one.arguments] == ["decimal"]
    assert ("UnscaledValue" in out._jdf.queryExecution().optimizedPlan().toString()) == (kind != kind.split()[0])


@pytest.mark.parametrize(
    ("measure", "state"),
    [
        ("count(n)", ["count"]),
        ("sum(k)", ["sum"]),
        ("sum(n)", ["sum"]),
        ("sum(double(n))", ["sum"]),
        ("sum(cast(n as decimal(10,2)))", ["sum", "isEmpty"]),
        ("sum(cast(n as decimal(38,2)))", ["sum", "isEmpty"]),
        ("avg(n)", ["sum", "count"]),
        ("avg(cast(n as decimal(10,2)))", ["sum", "count"]),
        ("avg(cast(n as decimal(12,2)))", ["sum", "count"]),
        ("sum(cast(n as decimal(8,2)))", ["sum"]),
        ("min(t)", ["min"]),
        ("max(t)", ["max"]),
        ("max_by(t, n)", ["valueWithExtremumOrdering", "extremumOrdering"]),
        ("min_by(t, n)", ["valueWithExtremumOrdering", "extremumOrdering"]),
        ("stddev(n)", ["n", "avg", "m2"]),
        ("stddev_pop(n)", ["n", "avg", "m2"]),
        ("variance(n)", ["n", "avg", "m2"]),
        ("var_pop(n)", ["n", "avg", "m2"]),
    ],
)
def test_what_spark_keeps_of_an_aggregate(rows: DataFrame, measure: str, state: list[str]) -> None:
    """In this order the buffers of parts are handed to Spark's own last step."""
    (one,) = aggregate(rows.groupBy("k").agg(F.expr(measure))).measures
    assert [str(attribute.name()) for attribute in one.state] == state
    assert one.evaluated.references().toSeq().size() <= len(state)


def test_an_average_of_decimals_is_kept_as_a_sum_of_ten_more_digits_or_of_doubles(rows: DataFrame) -> None:
    for digits, kept in ((11, "double"), (12, "decimal(22,2)"), (38, "decimal(38,2)")):
        (one,) = aggregate(rows.groupBy("k").agg(F.avg(F.col("n").cast(f"decimal({digits},2)")))).measures
        assert [str(attribute.dataType().simpleString()) for attribute in one.state] == [kept, "bigint"]


def test_columns_become_the_attributes_that_others_know(spark: SparkSession, rows: DataFrame) -> None:
    (_, wanted, _) = inside_spark.items(inside_spark.plan_of(rows.withColumn("n", F.lit(7).cast("bigint"))).output())
    named = inside_spark.frame_of(inside_spark.renamed(rows, {"n": Bound.to(wanted)}), spark)
    (found,) = inside_spark.items(inside_spark.plan_of(named).output())
    assert found.exprId().equals(wanted.exprId()) and not named.schema["n"].nullable
    assert [row["n"] for row in named.collect()] == [2, 3, 5]


def test_a_template_runs_over_other_rows(spark: SparkSession, rows: DataFrame) -> None:
    empty = spark.createDataFrame([], rows.schema)
    double = empty.where("n > 2").select("k", (F.col("n") * 2).alias("m")).groupBy("k").agg(F.sum("m").alias("m"))
    template = Template.of(double, empty)
    other = rows.withColumn("more", F.lit(1)).select("more", "t", "n", "k")
    for frame in (other, other.union(other)):
        expected = {
            row["k"]: 2 * row["n"] for row in frame.where("n > 2").groupBy("k").agg(F.sum("n").alias("n")).collect()
        }
        assert {row["k"]: row["m"] for row in template.over(frame).collect()} == expected


def test_templates_over_one_frame_are_united_and_joined(spark: SparkSession, rows: DataFrame) -> None:
    """They have the same ids of columns, which Spark tells apart where they meet."""
    empty = spark.createDataFrame([], rows.schema)
    template = Template.of(empty.groupBy("k").agg(F.sum("n").alias("m")), empty)
    one = template.over(rows)
    assert one.union(template.over(rows)).count() == 4
    assert sorted(map(tuple, one.join(template.over(rows.where("k = 1")), "k").collect())) == [(1, 5, 5)]


def test_a_plan_of_branches_is_no_template(spark: SparkSession, rows: DataFrame) -> None:
    with pytest.raises(ValueError, match="Join"):
        Template.of(rows.join(spark.range(3), F.col("k") == F.col("id")), rows)


def test_rows_of_another_type_are_refused(spark: SparkSession, rows: DataFrame) -> None:
    """Spark would read a column by the type that the plan knows, whatever it holds."""
    template = Template.of(rows.select((F.col("n") + 1).alias("m")), rows)
    for other in (rows.withColumn("n", F.lit("x")), rows.drop("n")):
        with pytest.raises(ValueError, match="column n"):
            template.over(other)
