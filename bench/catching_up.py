"""How many events a stream drops as late while it catches up on partitions that filled unevenly: both ways, one run."""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

from bench.home import fresh_home, timed

T0 = 1_760_000_000_000
# Two hours at 28 events a second; each partition had its own busy hour, so equal shares are of unequal times.
SPAN = 7_200_000
TOPIC = """
from tally import topic

bids = topic(
    "bids", schema="auction INT, price DOUBLE, at TIMESTAMP", event_time="at", lateness="1 minute", partitions=4,
)
"""
PIPELINE = '''
from pyspark.sql import functions as F
from topics import bids

from tally import pipeline, tumbling


@pipeline(reads=bids, window=tumbling("1 minute"), key="auction")
def prices(bids):
    """Bids and the highest one of each auction, minute by minute."""
    return bids.groupBy("window", "auction").agg(F.count("*").alias("bids"), F.max("price").alias("highest"))
'''


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The same events, drained in small micro-batches by a query of its own and by the topic's; what each left out."""
    return {"bids": given.bids, **{way: run(given.bids, shared=way == "shared") for way in given.ways.split(",")}}


def run(bids: int, *, shared: bool) -> dict[str, Any]:
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"tally-bench-bids-{os.getpid()}"
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "topics.py").write_text(TOPIC)
    (folder / "pipelines" / "prices.py").write_text(PIPELINE)
    most = {"TALLY_MAX_OFFSETS_PER_TRIGGER": "10000"}
    with fresh_home(TALLY_CATALOG=str(folder), TALLY_SHARED=str(shared).lower(), **most):
        truly_late = produce(bids)
        _, cost = timed("stream", "--until-caught-up")
        return {"counted": counted(), "late": bids - counted(), "late_in_order": truly_late, **cost}


def counted() -> int:
    """The bids that the newest rows of the stream's table count."""
    import duckdb
    from deltalake import DeltaTable

    from tally.base.settings import settings
    from tally.catalog.load import catalogue

    pipeline = catalogue().pipeline("prices")
    rows = DeltaTable(settings().table("speed", pipeline.name, pipeline.version)).to_pyarrow_table()  # noqa: F841
    newest = "SELECT max_by(bids, _batch) AS bids FROM rows GROUP BY window_start, auction"
    found = duckdb.sql(f"SELECT sum(bids) FROM ({newest})").fetchall()
    return int(found[0][0] or 0)


def produce(bids: int) -> int:
    """Bids in the order of their arrival, seconds of disorder; how many come more than a minute late in that order."""
    from confluent_kafka import Producer

    from tally.sources.client import librdkafka

    chance, producer, late, newest = random.Random(7), Producer({**librdkafka(), "linger.ms": 20}), 0, 0
    for number in range(bids):
        now = T0 + number * SPAN // bids
        behind = chance.expovariate(1 / 3000) if chance.random() > 0.005 else chance.uniform(60_000, 600_000)
        at = int(now - behind)
        busy = 4 * number // bids  # of the four, the one whose half an hour it is gets most
        partition = busy if chance.random() < 0.7 else chance.randrange(4)
        newest = max(newest, at)
        late += at // 60_000 * 60_000 + 60_000 <= newest - 60_000
        bid = {"auction": chance.randrange(20), "price": chance.randrange(9000) / 100, "at": at}
        producer.produce("bids", json.dumps(bid), partition=partition, timestamp=now)
        producer.poll(0)
    assert producer.flush(60) == 0
    return late
