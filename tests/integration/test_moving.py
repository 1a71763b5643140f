"""What moves between windows after they were sealed: copies of one id, and sessions that an event joins or leaves."""

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
    if (
        only
    ):  # a backfill of other windows leaves both stale: no seal is left on them, and none put before they are stated
        restate_only(made, 30)
        made.reconcile(NAME)
        assert sealed(made) == {}
    made.batch(NAME, T0 + 30 * MINUTE, T0 + 31 * MINUTE)
    found = made.reconcile(NAME)
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert sealed(made) == {0: (1, 1.0, 2), 4: (1, 20.0, 1)}, "once, where the copy that came first says"


SESSION_TOPIC = """
clicks = topic("{prefix}.clicks", schema="id BIGINT, shop INT, amount DOUBLE, at TIMESTAMP",
               event_time="at", lateness="10 minutes", partitions=2{unique})
"""
SESSIONS = """
@pipeline(reads=clicks, window=session("2 minutes"), key="shop")
def visits(clicks):
    return clicks.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
"""


def test_a_session_whose_first_event_is_taken_away_by_a_copy_begins_in_another_slot(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = SESSION_TOPIC.format(prefix="taken", unique=', unique="id"')
    made = bespoke.make(tmp_path, broker, monkeypatch, topics, {"visits": SESSIONS})
    made.send("taken.clicks", order(1, 3.5, 10.0), at=T0 + 8 * MINUTE)
    made.send("taken.clicks", order(2, 5.25, 1.0), at=T0 + 8 * MINUTE)
    made.send("taken.clicks", order(9, 60, 0.0))
    made.stream()
    made.batch("visits")
    assert made.reconcile("visits")["verdict"] == "reconciled"
    assert visits(made) == {(3.5, 7.25): 2}
    made.send("taken.clicks", order(1, 12.5, 20.0), at=T0 + 8 * MINUTE - 1, partition=1)
    made.stream()
    made.batch("visits", T0 + 30 * MINUTE, T0 + 32 * MINUTE)
    found = made.reconcile("visits")
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert visits(made) == {(5.25, 7.25): 1, (12.5, 14.5): 1}


@pytest.mark.parametrize(("minute", "joined"), [(19.5, (19.5, 22.5)), (22.5, (20.5, 24.5))], ids=["left", "right"])
def test_an_event_outside_what_was_stated_joins_a_session_inside(
    spark: SparkSession,
    broker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    minute: float,
    joined: tuple[float, float],
) -> None:
    prefix = f"joined{int(minute)}"
    topics = SESSION_TOPIC.format(prefix=prefix, unique="")
    made = bespoke.make(tmp_path, broker, monkeypatch, topics, {"visits": SESSIONS})
    made.send(f"{prefix}.clicks", order(1, 20.5, 1.0))
    made.send(f"{prefix}.clicks", order(9, 90, 0.0))
    made.stream()
    made.batch("visits", T0 + 20 * MINUTE, T0 + 22 * MINUTE)
    assert made.reconcile("visits")["verdict"] == "reconciled"
    assert visits(made) == {(20.5, 22.5): 1}
    made.send(f"{prefix}.clicks", order(2, minute, 1.0))
    made.stream()
    made.batch("visits", T0 + 4 * MINUTE, T0 + 6 * MINUTE)  # the schedule has come to an older interval
    found = made.reconcile("visits")
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    assert visits(made) == {joined: 2}


def visits(made: Bespoke) -> dict[tuple[float, float], int]:
    """The sealed sessions with their number of events, in minutes after T0."""
    rows = [row for row in made.served("visits") if row["state"] == "sealed"]
    times = [[row[f"window_{edge}"].timestamp() * 1000 for edge in ("start", "end")] for row in rows]
    return {((a - T0) / MINUTE, (b - T0) / MINUTE): row["n"] for (a, b), row in zip(times, rows, strict=True)}


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
