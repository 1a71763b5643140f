"""The sales that live engines read: produced at a steady pace, read back from the broker, and what they come to."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from bench.peers.functions import TOPIC, Function

PARTITIONS = 4
BEHIND_SECONDS = 5.0  # a busy machine lets the shop wait for some seconds; more is another rate than was asked for
Batches = list[tuple[int, int, int]]  # partition, first offset, and the watermark that ruled what was late


class Shop:
    """Sells at a rate until it is closed: seconds of disorder, one sale in a hundred minutes late."""

    def __init__(self, rate: float) -> None:
        self.rate, self.over, self.behind = rate, threading.Event(), 0.0
        self.thread = threading.Thread(target=self.sell, daemon=True)

    def __enter__(self) -> Shop:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Returns once the broker has all that was sold."""
        self.over.set()
        self.thread.join()

    def too_slow(self) -> str:
        """A sentence where this machine could not sell at the rate; empty where it could."""
        return f"sales are {self.behind:.0f} s behind their rate" if self.behind > BEHIND_SECONDS else ""

    def sell(self) -> None:
        from confluent_kafka import Producer

        from tally.sources.client import librdkafka

        producer, chance, sent, began = Producer({**librdkafka(), "linger.ms": 20}), random.Random(7), 0, time.time()
        while not self.over.is_set():
            due = int((time.time() - began) * self.rate)
            for _ in range(sent, due):
                behind = chance.expovariate(1 / 2) if chance.random() > 0.01 else chance.uniform(60, 300)
                sale = (
                    f'{{"shop": {int(chance.random() * 20)}, "city": {int(chance.random() * 50)}, '
                    f'"amount": {int(chance.random() * 8000) / 100}, "pieces": {int(chance.random() * 12)}, '
                    f'"at": {int((time.time() - behind) * 1000)}}}'
                )
                producer.produce(TOPIC, sale, partition=int(chance.random() * PARTITIONS))
                producer.poll(0)
            sent = due
            time.sleep(0.02)
        self.behind = time.time() - began - sent / self.rate
        producer.flush(30)


def read_back() -> pa.Table:
    """Every sale of the topic, with its place and the broker's time."""
    from confluent_kafka import Consumer, TopicPartition

    from tally.sources.client import librdkafka
    from tally.sources.kafka import end_offsets

    ends = end_offsets(TOPIC)
    consumer = Consumer({**librdkafka(), "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
    found: list[tuple[Any, ...]] = []
    while len(found) < sum(ends.values()):
        for message in consumer.consume(20_000, 1.0):
            found.append((message.partition(), message.offset(), message.timestamp()[1], message.value().decode()))
    consumer.close()
    names = ("partition", "offset", "stamp", "value")
    read = pa.table({name: list(values) for name, values in zip(names, zip(*found, strict=True), strict=True)})  # noqa: F841
    return duckdb.sql(
        """
        SELECT partition, "offset", stamp, e.* FROM (SELECT partition, "offset", stamp, from_json(value,
          '{"shop": "INTEGER", "city": "INTEGER", "amount": "DOUBLE", "pieces": "INTEGER", "at": "BIGINT"}') AS e
          FROM read)
        """
    ).to_arrow_table()


def expected(sales: pa.Table, function: Function, batches: Batches | None) -> pa.Table:
    """The function's rows over the sales; those left out that were late in their micro-batch, where it has any."""
    size, step = function.window.size, function.window.step
    measures = ", ".join(f"{one.sql} AS {one.name}" for one in function.measures)
    starts = ", ".join(f'"at" // {step} * {step} - {back}' for back in range(0, size, step))
    late = "-1"
    source = "sales"
    if batches is not None:
        columns = zip(*batches, strict=True)
        ruled = pa.table({n: list(v) for n, v in zip(("p", "start", "late"), columns, strict=True)})  # noqa: F841
        source = 'sales ASOF JOIN ruled ON partition = p AND "offset" >= start'
        late = "late"
    return duckdb.sql(
        f"SELECT w, {function.key} AS k, {measures} FROM "
        f"(SELECT sales.*, {late} AS late, unnest([{starts}]) AS w FROM {source}) "
        f"WHERE pieces > {function.least} AND w + {size} > late GROUP BY w, {function.key}"
    ).to_arrow_table()


def differences(got: pa.Table, wanted: pa.Table, function: Function) -> int:
    """How many rows (w, k and the measures) are in one of the two only, or differ; floating ones in the last digits."""
    same = " AND ".join(
        f"g.{m.name} = e.{m.name}"
        if m.whole
        else f"abs(g.{m.name} - e.{m.name}) <= 1e-9 * greatest(1, abs(e.{m.name}))"
        for m in function.measures
    )
    found = duckdb.sql(
        f"SELECT count(*) FROM got g FULL JOIN wanted e ON g.w = e.w AND g.k = e.k WHERE ({same}) IS NOT TRUE"
    ).fetchall()[0]
    return int(found[0])


def wrong_rows(
    sales: pa.Table, rows: Mapping[str, pa.Table], batches: Mapping[str, Batches], chosen: list[Function]
) -> str:
    """A sentence on the pipelines whose rows are not what the sales come to; empty where all are right."""
    wrong = []
    for one in chosen:
        number = differences(rows[one.name], expected(sales, one, batches.get(one.name)), one)
        if number:
            wrong.append(f"{number} rows of {one.name} differ")
    return ", ".join(wrong)
