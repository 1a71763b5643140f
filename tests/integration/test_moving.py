"""What moves between windows after they were sealed: copies of one id, and sessions that an event joins or leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bespoke
import pytest
from bespoke import MINUTE, T0, Bespoke
from pyspark.sql import SparkSession
from world import PATHS

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


@pytest.mark.parametrize("only", [False, pytest.param(True, marks=pytest.mark.long)])
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


@pytest.mark.parametrize(
    ("minute", "joined"),
    [
        pytest.param(19.5, (19.5, 22.5), id="left"),
        pytest.param(22.5, (20.5, 24.5), id="right", marks=pytest.mark.long),
    ],
)
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


CHAIN_TOPICS = """
orders = topic("chain.orders", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="1 minute")
payments = topic("chain.payments", schema="order_id BIGINT, paid BIGINT, at TIMESTAMP",
                 event_time="at", lateness="1 minute")
refunds = topic("chain.refunds", schema="payment BIGINT, amount BIGINT, at TIMESTAMP", event_time="at",
                lateness="1 minute")
"""
CHAIN = """
@pipeline(reads=[orders, payments, refunds], window=tumbling("1 minute"), key="id", reach="5 minutes")
def refunded(orders, payments, refunds):
    soon = "order_id = id AND p.at >= o.at AND p.at <= o.at + INTERVAL 5 MINUTES"
    paid = orders.alias("o").join(payments.alias("p"), F.expr(soon)).select("window", "id", "paid", "p.at")
    later = "payment = paid AND r.at >= p.at AND r.at <= p.at + INTERVAL 5 MINUTES"
    back = paid.alias("p").join(refunds.alias("r"), F.expr(later))
    return back.groupBy("window", "id").agg(F.sum("amount").alias("amount"))
"""


def test_three_topics_in_a_chain_reach_twice_as_far(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refund lies nine minutes behind its order, further than one reach, and comes after the window was sealed."""
    made = bespoke.make(tmp_path, broker, monkeypatch, CHAIN_TOPICS, {"refunded": CHAIN})
    ends = (("orders", {"id": 0}), ("payments", {"order_id": 0, "paid": 0}), ("refunds", {"payment": 0, "amount": 0}))
    minute = {"order": T0, "payment": T0 + 4 * MINUTE + 30_000, "refund": T0 + 9 * MINUTE}
    made.send("chain.orders", {"id": 1, "at": minute["order"]})
    made.send("chain.payments", {"order_id": 1, "paid": 7, "at": minute["payment"]})
    made.send("chain.refunds", {"payment": 7, "amount": 30, "at": minute["refund"]})
    for name, body in ends:
        made.send(f"chain.{name}", {**body, "at": T0 + 60 * MINUTE})
    made.stream()
    made.batch("refunded")
    assert made.reconcile("refunded")["verdict"] == "reconciled"
    assert [row["amount"] for row in made.served("refunded") if row["state"] == "sealed"] == [30]
    made.send("chain.refunds", {"payment": 7, "amount": 5, "at": minute["refund"] + 1})
    made.stream()
    made.batch("refunded", T0 + 30 * MINUTE, T0 + 31 * MINUTE)
    found = made.reconcile("refunded")
    assert (found["verdict"], found["different"], found["unexplained"]) == ("reconciled", 1, 0)
    assert [row["amount"] for row in made.served("refunded") if row["state"] == "sealed"] == [35]


def visits(made: Bespoke) -> dict[tuple[float, float], int]:
    """The sealed sessions with their number of events, in minutes after T0."""
    rows = [row for row in made.served("visits") if row["state"] == "sealed"]
    times = [[row[f"window_{edge}"].timestamp() * 1000 for edge in ("start", "end")] for row in rows]
    return {((a - T0) / MINUTE, (b - T0) / MINUTE): row["n"] for (a, b), row in zip(times, rows, strict=True)}


def restate_only(made: Bespoke, minute: int) -> None:
    from tally.base.duration import from_millis, iso
    from tally.jobs.batch import batch

    start, end = (iso(from_millis(T0 + at * MINUTE)) for at in (minute, minute + 1))
    batch(NAME, start, end, only=True)


def sealed(made: Bespoke) -> dict[int, tuple[int, float, int]]:
    """Of each sealed window, by minute: count, total and revision, as `tally read` has them."""
    rows = [row for row in made.served(NAME) if row["state"] == "sealed"]
    minute = {id(row): int(row["window_start"].timestamp() * 1000 - T0) // MINUTE for row in rows}
    return {minute[id(row)]: (row["n"], row["total"], row["revision"]) for row in rows}


REUSED = """
readings = topic("reused.{path}", schema="id BIGINT, shop INT, at TIMESTAMP", event_time="at", lateness="5 minutes",
                 unique="id")
"""
READ = """
@pipeline(reads=readings, window=tumbling("1 minute"), key="shop")
def read_by_minute(readings):
    return readings.groupBy("window", "shop").agg(F.count("*").alias("n"))
"""


@pytest.mark.parametrize(("path", "dropped"), [("own", {"duplicate": 1}), ("shared", {})])
def test_an_id_that_is_used_again_beyond_the_lateness_while_the_stream_still_holds_it(
    spark: SparkSession,
    broker: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    dropped: dict[str, int],
) -> None:
    """Two events by contract; Spark, which reads a backlog at once, drops the second, a window far away."""
    monkeypatch.setenv("TALLY_SHARED", PATHS[path])
    made = bespoke.make(tmp_path, broker, monkeypatch, REUSED.format(path=path), {"read_by_minute": READ})
    for number, minute in ((3, 3), (4, 10), (3, 20), (5, 60)):
        made.send(f"reused.{path}", {"id": number, "shop": 1, "at": T0 + minute * MINUTE})
    made.stream()
    made.batch("read_by_minute")
    start = T0 + 20 * MINUTE
    found = made.reconcile("read_by_minute", start, start + MINUTE)
    assert (found["verdict"], found["unexplained"], found["events"]) == ("reconciled", 0, dropped)
    assert made.reconcile("read_by_minute")["verdict"] == "reconciled"
    sealed = [row["window_start"] for row in made.served("read_by_minute") if row["state"] == "sealed"]
    assert len(sealed) == 3
