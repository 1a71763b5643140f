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

from tally.base.duration import from_millis, iso

NAME = "takings"
TOPICS = """
sales = topic("exact.sales", schema="shop INT, amount DOUBLE, price DECIMAL(18,2), at TIMESTAMP",
              event_time="at", lateness="1 hour", partitions=1)
"""
TAKINGS = """
@pipeline(reads=sales, window=tumbling("1 minute"), key="shop")
def takings(sales):
    totals = [F.sum("amount").alias("total"), F.sum("price").alias("price")]
    ends = F.struct(F.min("at").alias("first"), F.max("at").alias("last")).alias("ends")
    return sales.groupBy("window", "shop").agg(*totals, ends, F.sort_array(F.collect_list("amount")).alias("all"))
"""
LARGE = 125_000_000.1
AMOUNTS = [0.1, LARGE, 0.2, 0.3, LARGE, 0.7, 1e-3]  # of each minute; a millionth of them where it says so
LATE, UNHARMED = 0, 1  # minutes after T0; those that are harmed come after them


def sale(minute: int, second: float, amount: float, shop: int = 1) -> dict[str, Any]:
    return {"shop": shop, "amount": amount, "price": 0.1, "at": int(T0 + minute * MINUTE + second * 1000)}


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bespoke]:
    """Sums of 2.5e8, each in many micro-batches; in one minute a late 0.04, which is less than a tolerance of 1e-9."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", str(2 * len(MINUTES)))
        made = bespoke.make(tmp_path_factory.mktemp("exact"), broker, patch, TOPICS, {NAME: TAKINGS})
        for at, amount in enumerate(AMOUNTS):
            for minute in MINUTES:
                made.send("exact.sales", sale(minute, at, amount / 1e6 if minute in SMALL else amount))
        made.send("exact.sales", sale(200, 0, 1.0))
        made.stream()
        made.send("exact.sales", sale(LATE, 30, 0.04))
        made.stream()
        made.batch(NAME)
        yield made


def test_a_late_event_is_a_difference_however_small_and_rounding_is_none(made: Bespoke) -> None:
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert found["events"] == {"late": 1}
    assert [(row["window_start"], row["cause"]) for row in found["rows"]] == [("2026-01-05T08:00:00Z", "late")]
    assert found["equal"] == len(MINUTES) - 1


Harm = tuple[str, str, Callable[[], Column]]
# The layer, the column, and what is put there.
HARMS: dict[str, Harm] = {
    "a lost 0.20 in 2.5e8": ("speed", "total", lambda: F.col("total") - 0.20),
    "a gained 0.20 in 2.5e8": ("batch", "total", lambda: F.col("total") + 0.20),
    "NaN in the stream": ("speed", "total", lambda: F.lit(float("nan"))),
    "NaN in the batch": ("batch", "total", lambda: F.lit(float("nan"))),
    "Infinity in the stream": ("speed", "total", lambda: F.lit(float("inf"))),
    "Infinity in the batch": ("batch", "total", lambda: F.lit(float("inf"))),
    "null in the batch": ("batch", "total", lambda: F.lit(None).cast("double")),
    "a microsecond in a struct": (
        "speed",
        "ends",
        lambda: F.col("ends").withField("last", F.col("ends.last") + F.expr("INTERVAL '0.000001' SECOND")),
    ),
    "a cent of a DECIMAL": ("speed", "price", lambda: (F.col("price") + 0.01).cast("decimal(28,2)")),
    "an element of an array": ("batch", "all", lambda: F.slice("all", 1, 6)),
    "NaN in an array": ("speed", "all", lambda: F.transform("all", lambda x: x * float("nan"))),
}
HARMED = {harm: UNHARMED + at for at, harm in enumerate(HARMS, 1)}  # a minute each
MINUTES = (LATE, UNHARMED, *HARMED.values())
SMALL = {minute for harm, minute in HARMED.items() if "2.5e8" not in harm}


def start(harm: str) -> int:
    return T0 + HARMED[harm] * MINUTE


def put(made: Bespoke, spark: SparkSession, harms: list[str]) -> None:
    """Harm the row of each one's minute, all of a layer's in one commit."""
    for layer in ("speed", "batch"):
        columns: dict[str, Column] = {}
        for harm in harms:
            where, column, value = HARMS[harm]
            if where == layer:
                here = F.unix_millis("window_start") == start(harm)
                columns[column] = F.when(here, value()).otherwise(columns.get(column, F.col(column)))
        if columns:
            starts = [start(harm) for harm in harms]
            DeltaTable.forPath(spark, made.path(layer, NAME)).update(
                F.unix_millis("window_start").isin(starts), columns
            )


def test_the_least_harm_is_no_rounding_where_all_else_agrees(made: Bespoke, spark: SparkSession) -> None:
    harm, *_ = HARMS
    put(made, spark, [harm])
    found = made.reconcile(NAME, start(harm), start(harm) + MINUTE)
    assert (found["verdict"], found["unexplained"]) == ("held", 1)
    assert found["rows"][0]["cause"] == "unexplained"
    assert made.seals(NAME)[start(harm)].state == "held"


def test_no_harm_is_rounding(made: Bespoke, spark: SparkSession) -> None:
    """Each in a minute of its own: the minutes are compared one by one."""
    _, *harms = HARMS
    put(made, spark, harms)
    found = made.reconcile(NAME, T0, T0 + len(MINUTES) * MINUTE)
    assert (found["verdict"], found["unexplained"]) == ("held", len(HARMS))
    late, *rows = sorted(found["rows"], key=lambda row: row["window_start"])
    assert late["cause"] == "late"
    assert [(row["window_start"], row["cause"]) for row in rows] == [
        (iso(from_millis(start(harm))), "unexplained") for harm in HARMS
    ]
    held = {at for at, seal in made.seals(NAME).items() if seal.state == "held"}
    assert held == {start(harm) for harm in HARMS}
