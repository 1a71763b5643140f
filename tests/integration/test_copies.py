"""Copies of one id in two windows: whichever wins, and however late it comes, the id is counted in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bespoke
import pytest
from bespoke import MINUTE, T0, Bespoke
from pyspark.sql import SparkSession

NAME = "orders_by_minute"
TOPICS = """
orders = topic("{prefix}.orders", schema="id BIGINT, shop INT, amount DOUBLE, at TIMESTAMP",
               event_time="at", lateness="10 minutes", unique="id", partitions=2)
"""
FUNCTION = """
@pipeline(reads=orders, window=tumbling("1 minute"), key="shop")
def orders_by_minute(orders):
    return orders.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
"""


def order(number: int, minute: float, amount: float) -> dict[str, Any]:
    return {"id": number, "shop": 1, "amount": amount, "at": int(T0 + minute * MINUTE)}


@pytest.mark.parametrize("only", [False, True])
def test_a_copy_that_wins_later_restates_the_window_of_the_one_that_was_counted(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: bool
) -> None:
    topic = f"copies{int(only)}.orders"
    topics = TOPICS.format(prefix=f"copies{int(only)}")
    made = bespoke.make(tmp_path, broker, monkeypatch, topics, {NAME: FUNCTION})
    made.send(topic, order(1, 0.5, 10.0), at=T0 + 5 * MINUTE)
    made.send(topic, order(2, 0.5, 1.0), at=T0 + 5 * MINUTE)
    made.send(topic, order(9, 60, 0.0))
    made.stream()
    made.batch(NAME)
    assert made.reconcile(NAME)["verdict"] == "reconciled"
    assert sealed(made) == {0: (2, 11.0, 1)}

    # An open transaction, or a producer's own clock: it was written later, and the broker's time is earlier.
    made.send(topic, order(1, 4.5, 20.0), at=T0 + 5 * MINUTE - 1, partition=1)
    made.stream()
    if only:  # a backfill of other windows leaves both stale: neither is compared, or sealed, before it is stated again
        restate_only(made, 30)
        made.reconcile(NAME)
        assert sealed(made) == {0: (2, 11.0, 1)}
    made.batch(NAME, T0 + 30 * MINUTE, T0 + 31 * MINUTE)
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert sealed(made) == {0: (1, 1.0, 2), 4: (1, 20.0, 1)}, "once, where the copy that came first says"


def restate_only(made: Bespoke, minute: int) -> None:
    from tally.batch.report import batch
    from tally.catalog.duration import from_millis, iso

    start, end = (iso(from_millis(T0 + at * MINUTE)) for at in (minute, minute + 1))
    batch(NAME, start, end, only=True)


def sealed(made: Bespoke) -> dict[int, tuple[int, float, int]]:
    """Of each sealed window, by minute: count, total and revision, as `tally read` has them."""
    rows = [row for row in made.served(NAME) if row["state"] == "sealed"]
    minute = {id(row): int(row["window_start"].timestamp() * 1000 - T0) // MINUTE for row in rows}
    return {minute[id(row)]: (row["n"], row["total"], row["revision"]) for row in rows}
