"""What may pass for rounding and what may not: no event, no NaN and no microsecond hides in a tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import bespoke
import pytest
from bespoke import MINUTE, T0, Bespoke
from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

NAME = "takings"
TOPICS = """
sales = topic("exact.sales", schema="shop INT, amount DOUBLE, price DECIMAL(18,2), at TIMESTAMP",
              event_time="at", lateness="1 minute", partitions=1)
"""
TAKINGS = """
@pipeline(reads=sales, window=tumbling("1 minute"), key="shop")
def takings(sales):
    totals = [F.sum("amount").alias("total"), F.sum("price").alias("price")]
    ends = F.struct(F.min("at").alias("first"), F.max("at").alias("last")).alias("ends")
    return sales.groupBy("window", "shop").agg(*totals, ends, F.sort_array(F.collect_list("amount")).alias("all"))
"""
LARGE = 125_000_000.1
# By minute after T0: what the stream reads in time, and what comes too late for it.
BIG, LATE_IN_BIG, PLAIN = 0, 1, 2


def sale(minute: int, second: float, amount: float, shop: int = 1) -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "price": 0.1, "at": int(T0 + minute * MINUTE + second * 1000)}


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bespoke]:
    """Sums of 2.5e8 in many micro-batches; in one minute a late 0.04, which is less than a tolerance of 1e-9."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "3")
        made = bespoke.make(tmp_path_factory.mktemp("exact"), broker, patch, TOPICS, {NAME: TAKINGS})
        for minute in (BIG, LATE_IN_BIG, PLAIN):
            for at, amount in enumerate([0.1, LARGE, 0.2, 0.3, LARGE, 0.7, 1e-3]):
                made.send("exact.sales", sale(minute, at, amount if minute != PLAIN else amount / 1e6))
        made.send("exact.sales", sale(30, 0, 1.0))
        made.stream()
        made.send("exact.sales", sale(LATE_IN_BIG, 30, 0.04))
        made.stream()
        made.batch(NAME)
        yield made


def test_a_late_event_is_a_difference_however_small_and_rounding_is_none(made: Bespoke) -> None:
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert found["events"] == {"late": 1}
    assert [(row["window_start"], row["cause"]) for row in found["rows"]] == [("2026-01-05T08:01:00Z", "late")]
    assert found["equal"] == 2


Change = Callable[[], dict[str, Column]]
NAN, INFINITE = F.lit, F.lit
HARMS: dict[str, tuple[str, int, Change]] = {
    "a lost 0.20 in 2.5e8": ("speed", BIG, lambda: {"total": F.col("total") - 0.20}),
    "a gained 0.20 in 2.5e8": ("batch", BIG, lambda: {"total": F.col("total") + 0.20}),
    "NaN in the stream": ("speed", PLAIN, lambda: {"total": F.lit(float("nan"))}),
    "NaN in the batch": ("batch", PLAIN, lambda: {"total": F.lit(float("nan"))}),
    "Infinity in the stream": ("speed", PLAIN, lambda: {"total": F.lit(float("inf"))}),
    "Infinity in the batch": ("batch", PLAIN, lambda: {"total": F.lit(float("inf"))}),
    "null in the batch": ("batch", PLAIN, lambda: {"total": F.lit(None).cast("double")}),
    "a microsecond in a struct": (
        "speed",
        PLAIN,
        lambda: {"ends": F.col("ends").withField("last", F.col("ends.last") + F.expr("INTERVAL '0.000001' SECOND"))},
    ),
    "a cent of a DECIMAL": ("speed", PLAIN, lambda: {"price": (F.col("price") + 0.01).cast("decimal(28,2)")}),
    "an element of an array": ("batch", PLAIN, lambda: {"all": F.slice("all", 1, 6)}),
    "NaN in an array": ("speed", PLAIN, lambda: {"all": F.transform("all", lambda x: x * float("nan"))}),
}


@pytest.mark.parametrize("harm", HARMS)
def test_harm_is_no_rounding(made: Bespoke, spark: SparkSession, harm: str) -> None:
    layer, minute, change = HARMS[harm]
    table = DeltaTable.forPath(spark, made.path(layer, NAME))
    before = table.history(1).collect()[0]["version"]
    start = T0 + minute * MINUTE
    try:
        table.update(F.unix_millis("window_start") == start, change())
        found = made.reconcile(NAME, start, start + MINUTE)
    finally:
        table.restoreToVersion(before)
    assert (found["verdict"], found["unexplained"]) == ("held", 1)
    assert found["rows"][0]["cause"] == "unexplained"
    assert made.seals(NAME)[start].state == "held"
