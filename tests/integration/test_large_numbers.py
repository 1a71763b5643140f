"""Numbers so large that nothing is known of their last digits: they excuse no other number, and no row."""

from __future__ import annotations

from collections.abc import Iterator

import bespoke
import pytest
from bespoke import MINUTE, T0, Bespoke
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

TOPIC = """
metered = topic("large.metered", schema="k STRING, n INT, y DOUBLE, x DOUBLE, at TIMESTAMP", event_time="at",
                lateness="1 minute")
"""
FUNCTION = """
@pipeline(reads=metered, window=tumbling("1 minute"), key="k")
def {name}(metered):
    return metered.groupBy("window", "k").agg({measures})
"""
MEASURES = {
    "counted": 'F.count("*").alias("c"), F.sum("n").alias("total")',
    "weighed": 'F.sum("y").alias("total")',
    "both": 'F.sum("x").alias("large"), F.sum("y").alias("total")',
}
LARGE = (1.0, 1.7e308, 1e30, 1.0, -1e308)  # of no function but one, a window each
MISSING = len(LARGE)  # the window whose row will be missing; before it are those with another value, behind it doubled


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bespoke]:
    with pytest.MonkeyPatch.context() as patch:
        texts = {name: FUNCTION.format(name=name, measures=measures) for name, measures in MEASURES.items()}
        home = bespoke.make(tmp_path_factory.mktemp("large"), broker, patch, TOPIC, texts)
        for window, large in enumerate(LARGE * 2):
            for at in range(3):
                time = T0 + window * MINUTE + at * 1000
                home.send("large.metered", {"k": "a", "n": 10, "y": 1.5, "x": large if at == 0 else 1.0, "at": time})
        home.send("large.metered", {"k": "end", "n": 0, "y": 0.0, "x": 0.0, "at": T0 + 60 * MINUTE})
        home.stream()
        yield home


@pytest.mark.parametrize("name", MEASURES)
def test_a_harmed_row_is_held_whatever_lies_beside_it(made: Bespoke, spark: SparkSession, name: str) -> None:
    """One of another value, one that is there twice, and one that is not there at all: none is rounding."""
    made.batch(name)
    table, path = DeltaTable.forPath(spark, made.path("batch", name)), made.path("batch", name)
    missing = f"timestamp_millis({T0 + MISSING * MINUTE})"
    doubled = table.toDF().where(f"k = 'a' AND window_start > {missing}").collect()
    table.update(f"k = 'a' AND window_start < {missing}", {"total": "total + 1000"})
    table.delete(f"window_start = {missing}")
    spark.createDataFrame(doubled, table.toDF().schema).write.format("delta").mode("append").save(path)
    found = made.reconcile(name)
    assert (found["verdict"], found["unexplained"], found["rounding"]) == ("held", 2 * len(LARGE), 0)
    assert {row["state"] for row in made.served(name) if row["k"] == "a"} == {"held"}


@pytest.mark.parametrize("name", MEASURES)
def test_unharmed_it_is_sealed(made: Bespoke, name: str) -> None:
    made.batch(name)
    found = made.reconcile(name)
    assert (found["verdict"], found["different"]) == ("reconciled", 0)
