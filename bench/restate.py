"""Archived events stated again, beside a Spark batch from Kafka and DuckDB over the archive's files.

All three write one-minute windows of the same events, a hundredth of which come twice. An answer that is not that of
the events as they were sent has no time.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
from confluent_kafka import Producer
from deltalake import DeltaTable

from bench.home import catalogue, middle, run, timed
from bench.scattered import MINUTE, PIPELINE, T0, iso

DAY = 24 * 60 * MINUTE
KEYS = 16
TOPICS = '''
from tally import topic

orders = topic(
    "orders",
    schema="""
        id BIGINT, shop INT, amount DOUBLE, at TIMESTAMP, customer BIGINT, courier BIGINT, zone INT, tip DOUBLE,
        fee DOUBLE, paid BOOLEAN, channel STRING, note STRING
    """,
    event_time="at",
    lateness="2 minutes",
    unique="id",
    partitions=2,
)
'''
COLUMNS = "epoch_ms(window_start) AS start, shop, n, total"
SENT = """
SELECT sent - sent % 60000 AS start, shop, count(*) AS n, sum(amount) AS total
FROM read_csv('{}', columns = {{'sent': 'BIGINT', 'shop': 'INTEGER', 'amount': 'DOUBLE'}}) GROUP BY ALL
"""


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """What whole processes cost that state all of it, or one hour: the middle one of some turns that alternate."""
    pipelines = {"sums": PIPELINE.format(window='tumbling("1 minute")')}
    with catalogue(TOPICS, pipelines, TALLY_SPARK_MEMORY="2g") as (home, bootstrap):
        send(bootstrap, given.events, home / "sent.csv")
        batch(T0 - 2 * DAY, MINUTE)  # archives all, and states none of it
        turns = [turn(home, bootstrap, number) for number in range(given.turns)]
    return {"events": given.events, **{name: middle([one[name] for one in turns]) for name in turns[0]}}


def turn(home: Path, bootstrap: str, number: int) -> dict[str, dict[str, float]]:
    """Each way once, and each answer looked at."""
    costs = {"restate": batch(T0, DAY)}
    check(home, batch_table(home))
    costs["restate_hour"] = batch(T0 + DAY // 2, 60 * MINUTE, "--only")
    check(home, batch_table(home))
    others = {
        "kafka": ("kafka_batch", bootstrap, "orders", f"{home}/kafka-{number}"),
        "duckdb": ("duckdb_batch", f"{home}/lake/archive/orders/*/*.parquet", f"{home}/duckdb-{number}.parquet"),
    }
    for name, (module, *arguments) in others.items():
        _, costs[name] = run([sys.executable, "-m", f"bench.others.{module}", *arguments])
        out = Path(arguments[-1])
        check(home, [str(file) for file in out.glob("*.parquet")] if out.is_dir() else [str(out)])
    return costs


def batch(start: int, span: int, *more: str) -> dict[str, float]:
    """What a batch of one range costs."""
    return timed("batch", "sums", "--from", iso(start), "--to", iso(start + span), *more)[1]


def batch_table(home: Path) -> list[str]:
    """The files of the batch table as it is now."""
    (table,) = (home / "lake" / "batch" / "sums").iterdir()
    return DeltaTable(table).file_uris()


def check(home: Path, files: list[str]) -> None:
    """Refuse an answer in which a window or a sum differs from what was sent."""
    sent, found = SENT.format(home / "sent.csv"), f"SELECT {COLUMNS} FROM read_parquet({files})"
    differ = f"(({sent}) EXCEPT ({found})) UNION ALL (({found}) EXCEPT ({sent}))"
    (wrong,) = duckdb.execute(f"SELECT count(*) FROM ({differ})").fetchone() or (None,)
    if wrong != 0:
        raise SystemExit(f"{wrong} rows are not those of the events that were sent: {files[:1]}")


def send(bootstrap: str, count: int, told: Path) -> None:
    """A day of events, a hundredth of them twice, and in a file what each is about."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    with told.open("w") as file:
        for at, event in enumerate(events(count)):
            producer.produce("orders", json.dumps(event).encode(), partition=event["id"] % 2)
            if at % 1000 == 0:
                producer.poll(0.01)
            if "again" not in event:
                file.write(f"{event['at']},{event['shop']},{event['amount']}\n")
    if producer.flush(120):
        raise SystemExit("Kafka did not take all events")


def events(count: int) -> Iterator[dict[str, Any]]:
    """Quarters add up exactly; a second copy comes fifty events after the first, and says so."""
    chance, recent = random.Random(count), deque[dict[str, Any]](maxlen=50)
    for at in range(count):
        event = {
            "id": at, "shop": at % KEYS, "amount": chance.randrange(400) / 4, "at": T0 + at * DAY // count,
            "customer": chance.randrange(10**9), "courier": at % 997, "zone": at % 263, "tip": (at % 40) / 4,
            "fee": 0.25, "paid": at % 3 > 0, "channel": "web" if at % 2 else "app", "note": f"order {at} of a day",
        }  # fmt: skip
        yield event
        recent.append(event)
        if at % 100 == 99:
            yield recent[0] | {"again": True}
