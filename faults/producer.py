"""A producer with disorder, late events, second copies and broken records, that remembers what the broker took.

Event time runs ahead of the clock by a factor, from well in the past, so that windows close in seconds.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from faults.truth import MINUTE, SECOND, Sent

TOPICS = ("faults.orders", "faults.readings")
PARTITIONS = 2
HOUR = 60 * MINUTE
FLUSH_SHOP = 99
# What is due meanwhile is sent at once afterwards: a wait for each of thousands a second costs a core of two.
BREATH = 0.01


@dataclass(frozen=True, kw_only=True)
class Disorder:
    """Shares of what is not in order, out of 1."""

    late: float = 0.03
    hours_late: float = 0.005
    again: float = 0.03
    bad: float = 0.01
    day_before: bool = False  # begin with some events of an earlier day


def poison(at: int, rng: random.Random) -> tuple[bytes | None, str]:
    """A record that no reader can count, and the reason that Tally must give."""
    body = {"id": 1, "shop": 1, "amount": 1.0, "at": at}
    text = json.dumps(body)
    kinds: list[tuple[bytes | None, str]] = [
        (b"", "empty"),
        (b"not json at all", "not_json"),
        (text.encode()[:-5], "not_json"),
        (b'{"id": 1, "shop": "\xff\xfe", "at": 1}', "not_utf8"),
        ((text + text).encode(), "not_one_object"),
        (f"[{text}]".encode(), "not_one_object"),
        (json.dumps({**body, "shop": "first"}).encode(), "wrong_type"),
        (json.dumps({**body, "at": None}).encode(), "no_time"),
        (json.dumps({"id": 1, "shop": 1, "amount": 1.0, "At": at}).encode(), "no_time"),
        (json.dumps({**body, "at": at // 1000}).encode(), "time_unit"),
        (json.dumps({**body, "at": at * 1000}).encode(), "time_unit"),
        (json.dumps({**body, "at": 2_082_758_400_000}).encode(), "future"),
    ]
    return rng.choice(kinds)


class Sender(threading.Thread):
    """Sends until it is told to stop; `sent` is the truth."""

    def __init__(
        self,
        bootstrap: str,
        rng: random.Random,
        *,
        rate: float = 120,
        speed: int = 60,
        disorder: Disorder | None = None,
        start_ms: int | None = None,
    ) -> None:
        super().__init__(name="producer", daemon=True)
        self.rng, self.rate, self.speed, self.disorder = rng, rate, speed, disorder or Disorder()
        self.sent: list[Sent] = []
        self.failed: list[str] = []
        self.recent: dict[str, list[dict[str, Any]]] = {topic: [] for topic in TOPICS}
        self.start_ms = int(time.time() * 1000) - 40 * HOUR if start_ms is None else start_ms
        self.reached = self.start_ms
        self.next_id = 0
        self.halt = threading.Event()
        self.guard = threading.Lock()
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": 600_000,
                "message.max.bytes": 16_000_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        if self.disorder.day_before:
            self.day_before()
        began = time.monotonic()
        at = 0
        while not self.halt.is_set():
            due = began + at / self.rate
            if (wait := due - time.monotonic()) > 0:
                self.producer.poll(min(max(wait, BREATH), 0.05))
                continue
            at += 1
            self.reached = self.start_ms + int((due - began) * self.speed * SECOND)
            with self.guard:
                self.one(self.rng.choice(TOPICS))

    def day_before(self) -> None:
        """A few events of an earlier day: once sealed, all of that day is old enough to be trimmed."""
        for number in range(120):
            body = self.made(self.start_ms - 26 * HOUR + number * 5 * SECOND)
            self.event(TOPICS[number % 2], number % PARTITIONS, body, kind="good")

    def one(self, topic: str) -> None:
        """The next record of a topic: in order, or not."""
        rng, shares, dice = self.rng, self.disorder, self.rng.random()
        partition = rng.randrange(PARTITIONS)
        if dice < shares.bad:
            body, reason = poison(self.reached, rng)
            self.send(topic, partition, body, kind="bad", refused=reason)
            return
        dice -= shares.bad
        if dice < shares.again and self.recent[topic]:
            self.event(topic, partition, rng.choice(self.recent[topic]), kind="again")
            return
        dice -= shares.again
        back, kind = rng.randrange(30 * SECOND), "good"
        if dice < shares.hours_late:
            back, kind = rng.randrange(1, 6) * HOUR, "hours late"
        elif dice < shares.hours_late + shares.late:
            back, kind = rng.randrange(3 * MINUTE, 20 * MINUTE), "late"
        self.event(topic, partition, self.made(self.reached - back), kind=kind)

    def made(self, at: int) -> dict[str, Any]:
        """A new event at a time."""
        self.next_id += 1
        shop, amount = self.rng.randrange(4), self.rng.randrange(1, 400) / 4
        return {"id": self.next_id, "shop": shop, "amount": amount, "at": at}

    def event(self, topic: str, partition: int, body: dict[str, Any], kind: str) -> None:
        if kind != "again":
            self.recent[topic] = [*self.recent[topic][-99:], body]
        facts = {"time": body["at"], "id": body["id"], "shop": body["shop"], "amount": body["amount"]}
        self.send(topic, partition, json.dumps(body).encode(), kind=kind, **facts)

    def send(self, topic: str, partition: int, body: bytes | None, *, kind: str, **facts: Any) -> None:
        """Give a record to the client; it is in `sent` once the broker has said where it lies."""
        while True:
            try:
                self.producer.produce(topic, body, partition=partition, on_delivery=self.told(kind, facts))
                return
            except BufferError:
                self.producer.poll(0.1)

    def told(self, kind: str, facts: dict[str, Any]) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is not None:
                self.failed.append(str(error))
                return
            place = (message.topic(), message.partition(), message.offset())
            self.sent.append(Sent(place=place, broker_time=message.timestamp()[1], kind=kind, **facts))

        return report

    def finish(self) -> None:
        """Stop, and send a far event to each partition, so that every window before it closes; all is acknowledged."""
        self.halt.set()
        self.join()
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                far = {**self.made(self.reached + HOUR), "shop": FLUSH_SHOP}
                self.event(topic, partition, far, kind="flush")
        left = self.producer.flush(120)
        if left or self.failed:
            raise RuntimeError(f"{left} records were never acknowledged, {len(self.failed)} refused: the run is void")
