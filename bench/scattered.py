"""Late events spread over every other window: what a comparison costs as windows grow in number, in a heap of 1 GiB.

Each size has a home, a topic and a second catalogue of its own: one-minute windows of ten events and a late one,
hopping windows, or one session a window. All late events come after the stream has closed everything.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench import home
from bench.home import tally, timed

MINUTE = 60_000
T0 = 1_767_600_000_000
KEYS = 4
EVENTS = 10  # a window
TOPICS = """
from tally import topic

orders = topic(
    "orders", schema="shop INT, amount DOUBLE, at TIMESTAMP", event_time="at", lateness="2 minutes", partitions=2
)
"""
PIPELINE = """
from pyspark.sql import functions as F
from topics import orders

from tally import hopping, pipeline, session, tumbling


@pipeline(reads=orders, window={window}, key="shop")
def sums(orders):
    return orders.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
"""
WINDOWS = {
    "tumbling": 'tumbling("1 minute")',
    "hopping": 'hopping("5 minutes", by="1 minute")',
    "session": 'session("10 seconds")',
}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Each kind at each size: seconds, memory, and seconds a differing row."""
    sizes = [int(size) for size in given.windows.split(",")]
    return {"runs": [said(run(kind, size)) for kind in given.kinds.split(",") for size in sizes]}


def said(found: dict[str, Any]) -> dict[str, Any]:
    """Told when it is known: the large sizes take long, and may be cut off."""
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


@contextmanager
def catalogue(window: str, topics: str = TOPICS) -> Iterator[tuple[Path, str]]:
    """A home with one topic and one pipeline of such windows; its folder and the broker's address."""
    settings = {"TALLY_SPARK_MEMORY": "1g", "TALLY_MAX_OFFSETS_PER_TRIGGER": "20000"}
    with home.catalogue(topics, {"sums": PIPELINE.format(window=window)}, **settings) as made:
        yield made


def run(kind: str, size: int) -> dict[str, Any]:
    with catalogue(WINDOWS[kind]) as (_, bootstrap):
        events = list(on_time(size))
        send(bootstrap, [*events, (T0 + (size + 60) * MINUTE, 0, 1.0)])
        tally("stream", "--until-caught-up")
        late = list(late_ones(size))
        send(bootstrap, late)
        tally("stream", "--until-caught-up")
        span = ("--from", iso(T0 - 60 * MINUTE), "--to", iso(T0 + (size + 30) * MINUTE))
        _, batch = timed("batch", "sums", *span)
        found, compared = timed("reconcile", "sums", *span)
        restated = restate_again(bootstrap, size)
    return {
        "kind": kind,
        "windows": size,
        "events": len(events) + len(late),
        "late": {"sent": len(late), "found": found["events"].get("late", 0)},
        "different": found["different"],
        "unexplained": found["unexplained"],
        "verdict": found["verdict"],
        "batch": batch,
        "reconcile": compared,
        "milliseconds_a_difference": round(1000 * compared["wall_seconds"] / max(1, found["different"]), 1),
        "batch_of_scattered_late_events": restated,
    }


def on_time(size: int) -> Iterator[tuple[int, int, float]]:
    chance = random.Random(size)
    for window in range(size):
        for at in range(EVENTS):
            yield T0 + window * MINUTE + at * 4_000, window % KEYS, chance.randrange(400) / 4


def late_ones(size: int) -> Iterator[tuple[int, int, float]]:
    for window in range(0, size, 2):
        yield T0 + window * MINUTE + 2_000, window % KEYS, 0.25


def restate_again(bootstrap: str, size: int) -> dict[str, float]:
    """One more late event in every other window, taken in by a batch of an hour that has nothing to do with them."""
    send(bootstrap, [(time + 1000, key, amount) for time, key, amount in late_ones(size)])
    hour = ("--from", iso(T0 + (size + 31) * MINUTE), "--to", iso(T0 + (size + 32) * MINUTE))
    _, cost = timed("batch", "sums", *hour)
    return cost


def send(bootstrap: str, events: list[tuple[int, int, float]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for at, (time, key, amount) in enumerate(events):
        body = json.dumps({"shop": key, "amount": amount, "at": time}).encode()
        producer.produce("orders", body, partition=at % 2)
        producer.poll(0) if at % 1000 == 0 else None
    assert producer.flush(60) == 0


def iso(ms: int) -> str:
    from tally.base.duration import from_millis
    from tally.base.duration import iso as text

    return text(from_millis(ms))
