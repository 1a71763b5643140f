"""The rides that every engine drains, made from a seed: seconds of disorder, one in a hundred up to an hour late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

PARTITIONS = 4
MINUTE = 60_000
LATENESS = 10 * MINUTE
T0 = 1_760_000_000_000
APART = 10  # milliseconds between one ride and the next
AT_ONCE = 200_000
# Partitions are read side by side, and one is some rides ahead: 20 seconds of rides, of ten minutes that are allowed.
AHEAD = 2_000
# By what each workload groups: 5, 265 and 10,000 keys. Of the last, nearly every ride is a row of its own.
KEYS = {"W1": "vendor", "W2": "zone", "W3": "cab"}
SCHEMA = "ride_id BIGINT, vendor INT, zone INT, cab INT, amount DOUBLE, ts TIMESTAMP"


def rides(count: int) -> Iterator[dict[str, np.ndarray]]:
    """So many rides in the order in which they are sent, some at a time; fewer are the first ones of more."""
    chance = np.random.default_rng(7)
    for start in range(0, count, AT_ONCE):
        number = np.arange(start, start + AT_ONCE)
        late = np.where(chance.random(AT_ONCE) < 0.01, chance.integers(0, 60 * MINUTE, AT_ONCE), 0)
        made = {
            "ride_id": number,
            "vendor": chance.integers(1, 6, AT_ONCE),
            "zone": chance.integers(1, 266, AT_ONCE),
            "cab": chance.integers(0, 10_000, AT_ONCE),
            "cents": chance.integers(100, 8_000, AT_ONCE),
            "ts": T0 + number * APART + chance.integers(-30_000, 30_001, AT_ONCE) - late,
            "partition": chance.integers(0, PARTITIONS, AT_ONCE),
        }
        yield {name: values[: count - start] for name, values in made.items()}


def produce(bootstrap: str, topic: str, count: int, *, copies: int | None = None) -> None:
    """Make the topic, and send the rides to it; returns once the broker has them all.

    One in a hundred is sent twice where `copies` says to which partition: so many further.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 2 * AT_ONCE,
            "enable.idempotence": True,
            "log_level": 3,  # a broker that has just been started is asked twice, and says so
        }
    )
    for part in rides(count):
        columns = [part[name].tolist() for name in ("ride_id", "vendor", "zone", "cab", "cents", "ts", "partition")]
        for ride, vendor, zone, cab, cents, ts, partition in zip(*columns, strict=True):
            value = (
                f'{{"ride_id": {ride}, "vendor": {vendor}, "zone": {zone}, "cab": {cab}, '
                f'"amount": {cents / 100}, "ts": {ts}}}'
            )
            producer.produce(topic, value, partition=partition)
            if copies is not None and ride % 100 == 0:
                producer.produce(topic, value, partition=(partition + copies) % PARTITIONS)
        if producer.flush(120):
            raise SystemExit(f"the broker took not all of {topic}")


def truth(count: int, key: str, folder: Path, *, ids: bool = False) -> Path:
    """A Parquet file of what each window and key must hold; `late` of its rides came when it was over for everyone.

    Where `ids` are told apart, a ride is late itself, whatever its window.
    """
    file = folder / f"truth-{count}-{key}{'-ids' if ids else ''}.parquet"
    if not file.exists():
        parts = list(rides(count))
        ts = np.concatenate([part["ts"] for part in parts])
        columns = {name: np.concatenate([part[name] for part in parts]) for name in (key, "cents")}
        start = ts // MINUTE * MINUTE
        newest = np.maximum.accumulate(ts)
        late = (ts if ids else start + MINUTE) + LATENESS <= newest[np.minimum(np.arange(count) + AHEAD, count - 1)]
        made = pa.table({"w": start, "k": columns[key], "cents": columns["cents"], "late": late})  # noqa: F841
        duckdb.sql(
            "COPY (SELECT w, k, count(*) AS n, sum(cents) / 100 AS amount, count(*) FILTER (WHERE late) AS late "
            f"FROM made GROUP BY w, k) TO '{file}' (FORMAT parquet)"
        )
    return file
