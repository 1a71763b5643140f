"""A small catalogue on the session's broker: events that are known to the last one, and both layers run on them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oracle
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from oracle import Batch, Event, Rows, Shape, Streamed

from tally.base.duration import from_millis, iso, to_millis
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline
from tally.control import ledger, runs
from tally.speed import checkpoint

SECOND, MINUTE = 1000, 60_000
# Nowhere near today: nothing may depend on the clock. Topics keep their records for ever.
T0 = 1_767_600_000_000
PARTITIONS = 2
LATENESS = {"orders": 2 * MINUTE, "payments": 3 * MINUTE}
REACH = 5 * MINUTE
STEP = 15 * SECOND  # between events; one example is about an hour long
IDLE = MINUTE
# The ways that the stream of a pipeline may take whose rows add up from parts, and the settings that choose them.
PATHS = {"shared": "true", "own": "false"}
# Where the one that streams take by default tells enough in a short run.
DEFAULT_FIRST = ["shared", pytest.param("own", marks=pytest.mark.long)]

TOPICS = """
from tally import topic

orders{suffix} = topic(
    "{prefix}orders{suffix}", schema="id BIGINT, ref BIGINT, shop INT, amount DOUBLE, at TIMESTAMP",
    event_time="at", lateness="2 minutes"{unique}, partitions=2,
)
payments{suffix} = topic(
    "{prefix}payments{suffix}", schema="id BIGINT, ref BIGINT, method STRING, amount DOUBLE, paid TIMESTAMP",
    event_time="paid", lateness="3 minutes"{unique}, partitions=2,
)
"""
SINGLE = """
from pyspark.sql import functions as F
from topics import orders{suffix}

from tally import hopping, pipeline, session, tumbling


@pipeline(reads=orders{suffix}, window={window}, key="shop")
def {name}(orders):
    return orders.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
"""
JOIN = """
from pyspark.sql import functions as F
from topics import orders{suffix}, payments{suffix}

from tally import pipeline, tumbling


@pipeline(reads=[orders{suffix}, payments{suffix}], window={window}, key="method", reach="5 minutes")
def {name}(orders, payments):
    pairs = orders.alias("o").join(
        payments.alias("p"), F.expr("o.ref = p.ref AND paid >= at AND paid < at + INTERVAL 5 MINUTES")
    )
    return pairs.groupBy("window", "method").agg(F.count("*").alias("n"), F.sum("p.amount").alias("total"))
"""
# A row an event: what is counted is 1, but of the cheapest orders, which the function leaves out.
EVENTS = """
from pyspark.sql import functions as F
from topics import orders{suffix}

from tally import events, pipeline


@pipeline(reads=orders{suffix}, window={window}, key="id")
def {name}(orders):
    dear = orders.where(F.col("amount") > {cheap})
    return dear.select("window", "id", F.lit(1).cast("bigint").alias("n"), F.col("amount").alias("total"))
"""
CHEAP = 20.0
WINDOWS = {
    "tumbling": 'tumbling("1 minute")',
    "hopping": 'hopping("3 minutes", by="1 minute")',
    "session": 'session("2 minutes")',
    "join": 'tumbling("2 minutes")',
    "events": 'events("1 minute")',
}
TEXTS = {"join": JOIN, "events": EVENTS}


def shape_of(name: str) -> Shape:
    """What the oracle has to know of a pipeline of this catalogue."""
    kind, unique = name.split("_")[0], name.endswith("_u")
    if kind == "join":
        return Shape("join", 2 * MINUTE, tuple(LATENESS.values()), reach=REACH, unique=unique)
    size, slide = {"tumbling": (1, 1), "hopping": (3, 1), "session": (2, 0), "events": (1, 1)}[kind]
    above = CHEAP if kind == "events" else None
    return Shape(kind, size * MINUTE, (LATENESS["orders"],), slide=slide * MINUTE, unique=unique, above=above)


@dataclass
class Record:
    """One record to produce, and the event that it is where it is valid."""

    topic: str
    partition: int
    broker_time: int
    body: bytes
    event: dict[str, Any] | None = None


@dataclass
class World:
    """One example: a home, a catalogue, and what was produced to each topic so far."""

    folder: Path
    prefix: str
    names: list[str]
    broker: str
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    drained: list[dict[tuple[str, int], int]] = field(default_factory=list)  # what each drive of the stream found
    starts: dict[str, set[int]] = field(default_factory=dict)  # micro-batches that a driver began with

    def pipeline(self, name: str) -> Pipeline:
        return catalogue().pipeline(name)

    def topics(self, name: str) -> list[str]:
        return [t.name for t in self.pipeline(name).reads]

    def truth(self, name: str) -> list[list[Event]]:
        return [self.events.get(topic, []) for topic in self.topics(name)]

    def produce(self, records: list[Record]) -> None:
        """Send records in order, each to its partition, and remember what is now there."""
        # Else a batch that is sent again is overtaken, and what is remembered of offsets does not hold.
        producer = Producer({"bootstrap.servers": self.broker, "linger.ms": 5, "enable.idempotence": True})
        for record in records:
            place = (record.topic, record.partition)
            offset = self.ends.get(place, 0)
            self.ends[place] = offset + 1
            if record.event is None:
                self.refused[record.topic] = self.refused.get(record.topic, 0) + 1
            else:
                known = Event(record.partition, offset, record.broker_time, **record.event)
                self.events.setdefault(record.topic, []).append(known)
            producer.produce(record.topic, record.body, partition=record.partition, timestamp=record.broker_time)
        assert producer.flush(30) == 0

    def stream(self, *names: str) -> None:
        """Drain what there is, in this process."""
        from tally.speed.driver import Driver

        for name in names or self.names:
            self.starts.setdefault(name, set()).add(len(self.ledger(name)))
        self.drained.append(dict(self.ends))
        assert Driver(list(names or self.names), until_caught_up=True).run() == []

    def ledger(self, name: str) -> list[ledger.MicroBatch]:
        return ledger.read(name, self.pipeline(name).version)

    def boundaries(self, name: str) -> list[Batch]:
        """The micro-batches as the stream cut them: offsets only, nothing that the engine worked out from them."""
        fresh = self.starts.get(name, set())
        return [
            Batch(tuple(batch.ranges.get(topic, {}) for topic in self.topics(name)), at in fresh)
            for at, batch in enumerate(self.ledger(name))
        ]

    def generation(self, name: str) -> int:
        return checkpoint.generation(name, self.pipeline(name).version)

    def path_of(self, name: str, generation: int | None = None) -> str:
        """Which way the stream took, by the folder of its generation: with its topic's, or in a query of its own."""
        number = generation or self.generation(name)
        folder = f"{settings().checkpoint_root}/{name}/{self.pipeline(name).version}/g{number}"
        return "own" if checkpoint.shared_topic(folder) is None else "shared"

    def told(self, name: str, generation: int | None = None) -> Streamed:
        """What a generation must have put out, by the offsets of its micro-batches and nothing else that it says."""
        number = generation or self.generation(name)
        numbers = [batch.generation for batch in self.ledger(name)]
        batches = [one for one, of in zip(self.boundaries(name), numbers, strict=True) if of == number]
        shape, truth = shape_of(name), self.truth(name)
        if self.path_of(name, number) == "own":
            return oracle.streamed(shape, truth, batches)
        (topic,) = self.topics(name)
        return oracle.shared(shape, truth[0], batches, [self.held(topic, batch) for batch in batches], IDLE)

    def held(self, topic: str, batch: Batch) -> dict[int, int]:
        """What each partition held when the stream read a micro-batch: all that the drive found that came so far."""
        drives = ({p: end for (of, p), end in drive.items() if of == topic} for drive in self.drained)
        reached = next(d for d in drives if all(d.get(p, 0) >= to for p, (_, to) in batch.ranges[0].items()))
        return {p: reached.get(p, 0) for p in range(max([PARTITIONS - 1, *batch.ranges[0]]) + 1)}

    def check_stream(self, name: str) -> None:
        """The newest generation holds each offset once, and its watermarks and rows are what the oracle says."""
        number, out = self.generation(name), self.told(name)
        batches = [batch for batch in self.ledger(name) if batch.generation == number]
        for topic in self.topics(name):
            for partition in batches[-1].ranges[topic]:
                ranges = [batch.ranges[topic].get(partition, (0, 0)) for batch in batches]
                held, end = sorted(one for one in ranges if one[0] < one[1]), self.ends[topic, partition]
                assert [held[0][0], *(to for _, to in held)] == [*(start for start, _ in held), end], "each offset once"
        shared = self.path_of(name) == "shared"
        assert [batch.late_watermark if shared else batch.watermark for batch in batches] == out.watermarks
        assert self.table("speed", name) == out.rows

    def span(self) -> tuple[str, str]:
        """A range of windows that holds every event."""
        times = [event.time for events in self.events.values() for event in events]
        return iso(from_millis(min(times) - 10 * MINUTE)), iso(from_millis(max(times) + 10 * MINUTE))

    def batch(self, name: str) -> Rows:
        from tally.jobs.batch import batch

        batch(name, *self.span())
        return self.table("batch", name)

    def compare(self, name: str) -> dict[str, Any]:
        return self.compared(name, *self.span())

    def compare_range(self, name: str, wanted: Range) -> dict[str, Any]:
        return self.compared(name, *(iso(from_millis(edge)) for edge in wanted))

    def compared(self, name: str, start: str, end: str) -> dict[str, Any]:
        from tally.reconcile.compare import compare

        number = compare(name, start, end)
        row = runs.reconciliation(number)
        assert row is not None
        return {**row.summary, "id": number}

    def path(self, layer: str, name: str) -> str:
        return settings().table(layer, name, self.pipeline(name).version)

    def table(self, layer: str, name: str) -> Rows:
        """The rows of a layer as a reader has them: of the speed table the newest micro-batch's word."""
        key = self.pipeline(name).key[0]
        rows = DeltaTable(self.path(layer, name)).to_pyarrow_table().to_pylist()
        newest: dict[Any, dict[str, Any]] = {}
        for row in rows:
            place = to_millis(row["window_start"]), to_millis(row["window_end"]), row[key]
            assert layer == "speed" or place not in newest, f"{place} is there twice"
            if place not in newest or row.get("_batch", 0) > newest[place]["_batch"]:
                newest[place] = row
        return {place: (row["n"], row["total"]) for place, row in newest.items()}


def declare(folder: Path, prefix: str, patch: pytest.MonkeyPatch, names: list[str]) -> None:
    """A catalogue on disk and a home beside it."""
    where = folder / "catalogue"
    (where / "pipelines").mkdir(parents=True)
    plain = TOPICS.format(prefix=prefix, suffix="", unique="")
    unique = TOPICS.format(prefix=prefix, suffix="_u", unique=', unique="id"')
    (where / "topics.py").write_text(plain + unique)
    for name in names:
        kind, suffix = name.split("_")[0], "_u" if name.endswith("_u") else ""
        text = TEXTS.get(kind, SINGLE).format(name=name, suffix=suffix, window=WINDOWS[kind], cheap=CHEAP)
        (where / "pipelines" / f"{name}.py").write_text(text)
    patch.setenv("TALLY_CATALOG", str(where))
    patch.setenv("TALLY_HOME", str(folder / "home"))


def make(folder: Path, prefix: str, broker: str, patch: pytest.MonkeyPatch, names: list[str]) -> World:
    """A world with its topics on the broker and its catalogue on disk."""
    declare(folder, prefix, patch, names)
    patch.setenv("TALLY_KAFKA", broker)
    config = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}
    wanted = [NewTopic(name, PARTITIONS, 1, config=config) for name in catalogue().topics]
    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics(wanted).values():
        made.result(15)
    return World(folder, prefix, names, broker)


def order(at: int, time: int, ref: int, shop: int, amount: float) -> tuple[bytes, dict[str, Any]]:
    body = {"id": at, "ref": ref, "shop": shop, "amount": amount, "at": time}
    return json.dumps(body).encode(), {"time": time, "id": at, "key": shop, "amount": amount, "ref": ref}


def payment(at: int, time: int, ref: int, method: str, amount: float) -> tuple[bytes, dict[str, Any]]:
    body = {"id": at, "ref": ref, "method": method, "amount": amount, "paid": iso(from_millis(time))}
    return json.dumps(body).encode(), {"time": time, "id": at, "key": method, "amount": amount, "ref": ref}


BAD = (b"", b"{", b'{"id": "x"}', b'{"id": 1}', b'{"id":1,"ref":1,"amount":1,"at":1767600000,"paid":1767600000}')


def story(
    seed: int, count: int, prefix: str, *, late: float = 0.1, again: float = 0.12, bad: float = 0.03
) -> list[Record]:
    """Records in the order of their arrival, 15 seconds apart: disorder, late ones, second copies, bad ones.

    Both the topics without ids and those with ids get every record.
    """
    chance = random.Random(seed)
    arrivals: list[tuple[int, str, bytes, dict[str, Any] | None, int]] = []
    for at in range(count):
        now = T0 + at * STEP
        disorder = chance.randrange(0, 90) * SECOND
        behind = chance.randrange(4, 60) * MINUTE if chance.random() < late else disorder
        # Whole seconds, so that events fall on the edges of windows and of sessions too.
        time = (now - behind) // SECOND * SECOND
        arrivals.append((now, "orders", *order(at, time, at, chance.randrange(4), chance.randrange(400) / 4), at))
        paid = time + chance.choice([0, 5, 30, 90, 200, 290, 300]) * SECOND
        behind = chance.randrange(4, 60) * MINUTE if chance.random() < late else chance.randrange(0, 60) * SECOND
        method = chance.choice(["card", "cash"])
        arrivals.append((paid + behind, "payments", *payment(at, paid, at, method, chance.randrange(400) / 4), at))
    for now, name, body, event, at in list(arrivals):
        if chance.random() < again:
            assert event
            if name == "orders" and chance.random() < 0.4:  # a copy that tells another time and another amount
                time = event["time"] + chance.randrange(-90, 90) * SECOND
                body, event = order(at, time, at, event["key"], event["amount"] + 1)
            arrivals.append((now + chance.randrange(0, 200) * SECOND, name, body, event, at))
    for at in range(int(count * bad)):
        arrivals.append(
            (T0 + chance.randrange(count) * STEP, chance.choice(["orders", "payments"]), chance.choice(BAD), None, at)
        )
    arrivals.sort(key=lambda a: a[0])
    return [
        Record(f"{prefix}{name}{suffix}", ref % PARTITIONS, now, body, event)
        for now, name, body, event, ref in arrivals
        for suffix in ("", "_u")
    ]


def flush(prefix: str, after: int = 240 * MINUTE) -> list[Record]:
    """One event in each topic so far ahead that every window before it closes."""
    time = T0 + after
    records = []
    for suffix in ("", "_u"):
        records.append(Record(f"{prefix}orders{suffix}", 0, time, *order(10**9, time, 10**9, 0, 1.0)))
        records.append(Record(f"{prefix}payments{suffix}", 0, time, *payment(10**9, time, 10**9, "card", 1.0)))
    return records
