"""A loop written by hand in one process: librdkafka, DuckDB, a dictionary of open windows, appends by delta-rs.

Each append carries the offsets as application transactions; a restart reads them and the open windows from the table,
in which the newest row of a window wins. `python -m bench.peers.engines.native BOOTSTRAP TOPIC KEY TABLE` drains.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from bench.peers.engines.engine import Command, Work, started_at
from bench.peers.meter import Cost
from bench.peers.rides import LATENESS, MINUTE

FETCH = 100_000
COMMIT_SECONDS = 10.0
SCHEMA = pa.schema([("start", pa.int64()), ("k", pa.int32()), ("n", pa.int64()), ("amount", pa.float64())])
CONSUMER = {
    "group.id": "native",
    "enable.auto.commit": False,
    "queued.min.messages": 500_000,
    "queued.max.messages.kbytes": 262_144,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.wait.max.ms": 10,
    "check.crcs": False,
}


class Native:
    """The loop below, as an engine."""

    name = "native"

    def drain(self, work: Work) -> Command:
        words = [sys.executable, "-m", __name__, work.bootstrap, work.topic, work.key, str(work.folder / "table")]
        return Command(words=words)

    def rows(self, work: Work) -> pa.Table:
        written = DeltaTable(work.folder / "table").to_pyarrow_table()  # noqa: F841
        return duckdb.sql(
            "SELECT start AS w, k, max(n) AS n, arg_max(amount, n) AS amount FROM written GROUP BY start, k"
        ).to_arrow_table()

    def up_at(self, work: Work, cost: Cost) -> float:
        return started_at(cost)

    def commits(self, work: Work) -> Path:
        return work.folder / "table" / "_delta_log"


@dataclass
class Loop:
    """What is open, where each partition stands, and what the next commit holds."""

    topic: str
    key: str
    table: str

    def __post_init__(self) -> None:
        self.windows: dict[tuple[int, int], tuple[int, float]] = {}
        self.newest: dict[int, int] = {}  # event time, by partition
        self.next: dict[int, int] = {}  # offset, by partition
        self.changed: set[tuple[int, int]] = set()
        self.duckdb = duckdb.connect()
        self.duckdb.execute("SET threads = 2")
        form = f'{{"{self.key}": "INTEGER", "amount": "DOUBLE", "ts": "BIGINT"}}'
        self.query = (
            f"SELECT e.ts // {MINUTE} * {MINUTE}, e.{self.key}, count(*), sum(e.amount), max(e.ts) "
            f"FROM (SELECT from_json(v, '{form}') AS e FROM bytes) GROUP BY ALL"
        )

    def begin(self, at: dict[int, int]) -> None:
        """From these offsets, or from where the table's own transactions say that it stands."""
        self.next, self.newest = dict(at), {partition: -(1 << 60) for partition in at}
        if not DeltaTable.is_deltatable(self.table):
            DeltaTable.create(self.table, SCHEMA, configuration={"delta.checkpointInterval": "100"})
            return
        there = DeltaTable(self.table)
        for partition in at:
            version = there.transaction_version(self.name_of(partition))
            self.next[partition] = at[partition] if version is None else version
        for row in sorted(there.to_pyarrow_table().to_pylist(), key=lambda row: row["n"]):
            self.windows[row["start"], row["k"]] = row["n"], row["amount"]

    def name_of(self, partition: int) -> str:
        return f"{self.topic}-{partition}"

    def closed(self) -> int:
        """Windows that end by then are over: the slowest partition decides."""
        return min(self.newest.values()) - LATENESS

    def take(self, partition: int, messages: list[Any]) -> None:
        self.next[partition] = messages[-1].offset() + 1
        over = self.closed()
        self.duckdb.register("bytes", pa.table({"v": pa.array([one.value() for one in messages], pa.string())}))
        for start, key, count, amount, newest in self.duckdb.execute(self.query).fetchall():
            self.newest[partition] = max(self.newest[partition], newest)
            if start + MINUTE <= over:
                continue
            before = self.windows.get((start, key), (0, 0.0))
            self.windows[start, key] = before[0] + count, before[1] + amount
            self.changed.add((start, key))

    def commit(self) -> None:
        """Append what changed, with the offsets; forget what is over."""
        rows = list(self.changed)
        values = [self.windows[row] for row in rows]
        columns: list[Iterable[Any]] = [
            [start for start, _ in rows],
            [key for _, key in rows],
            [count for count, _ in values],
            [amount for _, amount in values],
        ]
        stand = [Transaction(self.name_of(partition), offset) for partition, offset in self.next.items()]
        words = CommitProperties(app_transactions=stand)
        write_deltalake(self.table, pa.table(columns, schema=SCHEMA), mode="append", commit_properties=words)
        over = self.closed()
        self.windows = {row: value for row, value in self.windows.items() if row[0] + MINUTE > over}
        self.changed.clear()


def main() -> None:
    from confluent_kafka import Consumer, TopicPartition

    bootstrap, topic, key, table = sys.argv[1:5]
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    partitions = sorted(consumer.list_topics(topic).topics[topic].partitions)
    print("@start", flush=True)
    held = {p: consumer.get_watermark_offsets(TopicPartition(topic, p)) for p in partitions}
    ends = {p: high for p, (_, high) in held.items()}
    loop = Loop(topic, key, table)
    loop.begin({p: low for p, (low, _) in held.items()})
    consumer.assign([TopicPartition(topic, p, offset) for p, offset in loop.next.items()])
    last = time.monotonic()
    while any(loop.next[p] < end for p, end in ends.items()):
        by_partition: dict[int, list[Any]] = {}
        for message in consumer.consume(FETCH, 0.2):
            if message.error() is None and message.offset() < ends[message.partition()]:
                by_partition.setdefault(message.partition(), []).append(message)
        for partition, messages in by_partition.items():
            loop.take(partition, messages)
        if time.monotonic() - last >= COMMIT_SECONDS:
            loop.commit()
            last = time.monotonic()
    loop.commit()
    print("@end", flush=True)


if __name__ == "__main__":
    main()
