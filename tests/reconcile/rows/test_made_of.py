"""Which columns say how large what a measure sums is: those that are added up, and no condition's."""

from __future__ import annotations

from parts.declared import of
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.reconcile.rows.made_of import measured

MEASURES = {
    "sum(fare)": {"fare"},
    "sum(fare * small)": {"fare", "small"},
    "sum(double(price))": {"price"},
    "sum(-coalesce(double(twice), 0.0))": {"cents"},
    "avg(cents)": {"cents"},
    "stddev(cents)": {"cents"},
    "sum(if(id > 5, fare, 0))": {"fare"},
    "sum(case when id = 1 then double(cents) else 0 end) filter (where small = 1)": {"cents"},
    "sum(pmod(id, 10) + fare)": {"fare"},
    "sum(double(name))": set(),
    "sum(cents) / count(*)": set(),
    "max(fare) + avg(small)": {"fare", "small"},
    "double(max(cents))": set(),
    "sum(x)": {"fare", "tip"},  # of no column that is known: it may be any floating one
}


def test_a_measure_is_as_large_as_what_it_sums(spark: SparkSession) -> None:
    aggregates = [F.expr(one).alias(f"m{at}") for at, one in enumerate(MEASURES)]
    declared = of(
        lambda rows: (
            rows.select("*", (F.col("cents") * 2).alias("twice"), F.explode(F.array("fare")).alias("x"))
            .groupBy("window", "zone")
            .agg(*aggregates)
        )
    )
    found = measured(spark, declared, [f"m{at}" for at, _ in enumerate(MEASURES)])
    assert {one: {name for _, name in made} for one, made in zip(MEASURES, found, strict=True)} == MEASURES
