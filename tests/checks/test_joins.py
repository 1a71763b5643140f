"""A join keeps its events as near in time as it declares, and runs as a stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from checks.refusal import refused
from definitions import write
from pyspark.sql import SparkSession

from tally.catalog.load import load
from tally.checks.definition import check


def test_a_join_of_a_topic_with_itself_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    on = "F.expr('r.id = q.id and q.at >= r.at and q.at < r.at + interval 5 minutes')"
    body = f'rides.alias("r").join(rides.alias("q").drop("window"), {on}).groupBy("window", "r.zone").count()'
    error = refused(spark, write(tmp_path, body=body))
    assert "joins its topic with itself" in error.message and error.field == "function"


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


def test_two_times_of_one_name_that_meet_above_a_join_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own complaint would come with the first event."""
    folder = write(tmp_path)
    text = (folder / "topics.py").read_text()
    (folder / "topics.py").write_text(text + text.split("\n\n", 1)[1].replace("rides", "pays"))
    joined = JOIN.format(reach="5 minutes", bound=BOTH).replace(".count()", '.agg(F.max("r.at").alias("newest"))')
    (folder / "pipelines" / "demand.py").write_text(joined)
    error = refused(spark, folder)
    assert "several event times meet in its aggregate: at, window" in error.message and "a name of its own" in str(
        error
    )
    named = joined.replace("r.at", "rode_at").replace("rides.alias", 'rides.withColumnRenamed("at", "rode_at").alias')
    (folder / "pipelines" / "demand.py").write_text(named)
    assert check(spark, load(folder).pipelines["demand"])
