"""What is sent to the topics of a stage, where the broker says that it lies, and what both layers must make of it.

The truth shares no code with the engine: what is valid is decided here, what is counted by the tests' plain account.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import oracle
from confluent_kafka import Producer

SECOND, MINUTE = 1000, 60_000
HOUR = 60 * MINUTE
# Nowhere near today: nothing may depend on the clock.
T0 = 1_767_600_000_000
FLUSHED, ENDED, ELSEWHERE = T0 + 4 * HOUR, T0 + 8 * HOUR, T0 + 12 * HOUR
STEP, PAUSE = 15 * SECOND, 6 * MINUTE  # between events, and after every 24 of them, so that sessions end
PARTITIONS = 2
LATENESS = {"orders": 2 * MINUTE, "payments": 3 * MINUTE}
SKEW = 5 * MINUTE  # the product's default
TIME = {"orders": "at", "payments": "paid"}
BAD = (b"", b"{", b'{"id": "x"}', b'{"id": 1}', b'{"id":1,"ref":1,"shop":1,"amount":1e400,"at":1767600000000}')


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One record that the broker acknowledged, and whether its transaction was committed."""

    topic: str  # orders | payments
    partition: int
    offset: int
    broker_time: int
    body: dict[str, Any] | None  # None: no JSON of an event
    committed: bool = True


@dataclass(frozen=True, kw_only=True)
class ToSend:
    """One record on its way."""

    topic: str
    partition: int
    broker_time: int
    value: bytes
    body: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Contract:
    """Which records are valid: the columns that must be there, and how far in the future a time may lie."""

    required: tuple[str, ...] = ("shop",)
    skew: int = SKEW

    def takes(self, sent: Sent) -> bool:
        if sent.body is None or not sent.committed:
            return False
        here = [column for column in self.required if sent.topic == "orders"]
        return all(sent.body.get(c) is not None for c in here) and (
            sent.body[TIME[sent.topic]] <= sent.broker_time + self.skew
        )


DECLARED = Contract()


def shape_of(kind: str, unique: bool) -> oracle.Shape:
    """What the plain account has to know of a kind of pipeline."""
    if kind == "join":
        return oracle.Shape("join", 2 * MINUTE, tuple(LATENESS.values()), reach=5 * MINUTE, unique=unique)
    size, slide = {"tumbling": (1, 1), "hopping": (3, 1), "session": (2, 0), "events": (1, 1)}[kind]
    return oracle.Shape(kind, size * MINUTE, (LATENESS["orders"],), slide=slide * MINUTE, unique=unique)


def truth(shape: oracle.Shape, sent: Iterable[Sent], contract: Contract = DECLARED) -> oracle.Rows:
    """Every row that both layers must come to: each valid event once."""
    topics: dict[str, list[oracle.Event]] = {"orders": [], "payments": []}
    for one in sent:
        if contract.takes(one):
            assert one.body
            topics[one.topic].append(
                oracle.Event(
                    one.partition, one.offset, one.broker_time, one.body[TIME[one.topic]], one.body["id"],
                    one.body.get("shop", one.body.get("method")), one.body["amount"],
                    -1 if one.body.get("ref") is None else one.body["ref"],
                )
            )  # fmt: skip
    return oracle.batch_rows(shape, list(topics.values()) if shape.kind == "join" else [topics["orders"]])


def encoded(topic: str, partition: int, broker_time: int, body: dict[str, Any]) -> ToSend:
    """An event as it is sent; amounts are quarters, so that each of its measures is exact."""
    full = {**body, "cents": round(body["amount"] * 100), "price": body["amount"]}
    value = json.dumps({name: given for name, given in full.items() if given is not None}).encode()
    return ToSend(topic=topic, partition=partition, broker_time=broker_time, value=value, body=body)


def order(at: int, time: int, rng: random.Random) -> dict[str, Any]:
    return {"id": at, "ref": at, "shop": rng.randrange(4), "amount": rng.randrange(4, 400) / 4, "at": time}


def payment(at: int, time: int, rng: random.Random) -> dict[str, Any]:
    method = rng.choice(["card", "cash"])
    return {"id": at, "ref": at, "method": method, "amount": rng.randrange(4, 400) / 4, "paid": time}


def begun(rng: random.Random, count: int) -> list[ToSend]:
    """In order of arrival: disorder, late events, second copies, broken and incomplete records, times in the future."""
    found: list[tuple[int, ToSend]] = []

    def add(now: int, topic: str, partition: int, body: dict[str, Any], broker_time: int | None = None) -> None:
        found.append((now, encoded(topic, partition, now if broker_time is None else broker_time, body)))

    for at in range(count):
        now = T0 + at * STEP + at // 24 * PAUSE
        late = rng.random() < 0.1
        behind = rng.randrange(5 * MINUTE, 12 * MINUTE) if late else rng.randrange(90 * SECOND)
        body = order(at, (now - behind) // SECOND * SECOND, rng)
        if at % 23 == 5:
            body["at"] = now + 3 * MINUTE  # within the skew
        if at % 29 == 7:
            body["shop"] = None  # refused, as it is declared
        if at % 31 == 9:
            body["ref"] = None
        add(now, "orders", at % PARTITIONS, body)
        time = body["at"] + rng.choice([0, 5, 30, 90, 200, 299]) * SECOND
        taken = max(now, time) + (rng.randrange(4, 12) * MINUTE if rng.random() < 0.1 else rng.randrange(60) * SECOND)
        paid = payment(at, time, rng)
        add(taken, "payments", at % PARTITIONS, paid)
        if rng.random() < 0.12:
            add(now + rng.randrange(200) * SECOND, "orders", rng.randrange(PARTITIONS), body)
        if at % 17 == 3:  # the copy comes later, in another partition, and the broker had it earlier
            again = {**body, "at": body["at"] + 70 * SECOND, "amount": body["amount"] + 1}
            add(now + 150 * SECOND, "orders", 1 - at % PARTITIONS, again, now - 30 * SECOND)
    for _ in range(max(3, count // 30)):
        now, topic = T0 + rng.randrange(2 * count) * STEP, rng.choice(["orders", "payments"])
        value = rng.choice(BAD)
        found.append((now, ToSend(topic=topic, partition=rng.randrange(2), broker_time=now, value=value)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def far(time: int) -> list[ToSend]:
    """Events so far ahead that every window before them closes."""
    rng = random.Random(0)
    made = {"orders": order(time, time, rng), "payments": payment(time, time, rng)}
    return [encoded(topic, 0, time, body) for topic, body in made.items()]


def later(rng: random.Random, sent: Sequence[Sent]) -> list[ToSend]:
    """What arrives after the harm: late events of four minutes, copies, a broken record, six minutes of new ones."""
    found = []
    for at in range(5):
        time = T0 + 5 * MINUTE + rng.randrange(4 * MINUTE) // SECOND * SECOND
        found.append(encoded("orders", at % PARTITIONS, FLUSHED + MINUTE, order(20_000 + at, time, rng)))
        paid = payment(20_000 + at, time + 30 * SECOND, rng)
        found.append(encoded("payments", at % PARTITIONS, FLUSHED + MINUTE, paid))
    early = [one for one in sent if one.topic == "orders" and DECLARED.takes(one) and near(one, T0 + 6 * MINUTE)]
    for one in early[:2]:
        assert one.body
        again = {**one.body, "at": one.body["at"] + 70 * SECOND, "amount": one.body["amount"] + 2}
        found.append(encoded("orders", 1 - one.partition, one.broker_time - 45 * SECOND, again))
    found.append(ToSend(topic="orders", partition=0, broker_time=FLUSHED + MINUTE, value=b"{"))
    for at in range(24):
        now = FLUSHED + MINUTE + at * STEP
        body = order(30_000 + at, now - rng.randrange(60) * SECOND, rng)
        found.append(encoded("orders", at % PARTITIONS, now, body))
        found.append(encoded("payments", at % PARTITIONS, now, payment(30_000 + at, body["at"] + SECOND, rng)))
    return found


def near(one: Sent, time: int) -> bool:
    return one.body is not None and abs(one.body["at"] - time) < MINUTE


@dataclass
class Post:
    """Sends records to the topics with a prefix, and keeps what the broker says of each."""

    bootstrap: str
    prefix: str
    topics: tuple[str, ...]
    sent: list[Sent] = field(default_factory=list)

    def send(self, records: Sequence[ToSend]) -> None:
        """All of them but a stretch in the middle, of which one half is committed and one is aborted."""
        mine = [one for one in records if one.topic in self.topics]
        third = len(mine) // 3
        self.plainly(mine[:third])
        self.within(mine[third : third + 8], commit=True)
        self.within(mine[third + 8 : third + 14], commit=False)
        self.plainly(mine[third + 8 :])  # what was aborted is sent once more

    def plainly(self, records: Sequence[ToSend]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self.give(producer, records, committed=True)
        assert producer.flush(30) == 0

    def within(self, records: Sequence[ToSend], *, commit: bool) -> None:
        """One transaction."""
        config = {"bootstrap.servers": self.bootstrap, "transactional.id": f"{self.prefix}{len(self.sent)}"}
        producer = Producer(config)
        producer.init_transactions(30)
        producer.begin_transaction()
        self.give(producer, records, committed=commit)
        assert producer.flush(30) == 0
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    def give(self, producer: Producer, records: Sequence[ToSend], *, committed: bool) -> None:
        for one in records:
            producer.produce(
                self.prefix + one.topic, one.value, partition=one.partition, timestamp=one.broker_time,
                on_delivery=self.kept(one, committed),
            )  # fmt: skip

    def kept(self, one: ToSend, committed: bool) -> Callable[[Any, Any], None]:
        def told(error: Any, message: Any) -> None:
            if error is not None:
                raise RuntimeError(f"the broker took a record not: {error}")
            self.sent.append(
                Sent(
                    topic=one.topic, partition=message.partition(), offset=message.offset(),
                    broker_time=message.timestamp()[1], body=one.body, committed=committed,
                )
            )  # fmt: skip

        return told
