"""Records that nobody should send: broken, huge, deep, late, doubled, shuffled, far behind, or taken back."""

from __future__ import annotations

import json
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from faults.producer import HOUR, PARTITIONS, TOPICS, poison
from faults.run import Run
from faults.truth import MINUTE, Sent

DEEP = 100_000
LARGE = 10 << 20


def poisoned(run: Run) -> None:
    """Every broken record, some of them 10 MB or 100,000 levels deep, among good ones; no driver may die of it."""
    allow_large(run)
    driver = run.stack.driver()
    while run.left() > 60:
        at = run.sender.reached
        good = json.dumps({"id": 1, "shop": 1, "amount": 1.0, "at": at})
        for topic in TOPICS:
            for body, reason in strange(at, good):
                with run.sender.guard:
                    run.sender.send(topic, run.rng.randrange(PARTITIONS), body, kind="bad", refused=reason)
            for _ in range(40):
                body, reason = poison(at, run.rng)
                with run.sender.guard:
                    run.sender.send(topic, run.rng.randrange(PARTITIONS), body, kind="bad", refused=reason)
            large = run.sender.made(at)
            with run.sender.guard:
                facts = {"time": large["at"], "id": large["id"], "shop": large["shop"], "amount": large["amount"]}
                text = json.dumps({**large, "x": "y" * LARGE}).encode()
                run.sender.send(topic, 0, text, kind="good", **facts)
        time.sleep(5)
    if not run.moves():
        run.broken("I5", "the stream stands after poisoned records")
    now = run.stack.driver()
    if driver is None or now is None or now.pid != driver.pid:
        run.broken("I5", "the driver was started again: a record killed it")


def strange(at: int, good: str) -> list[tuple[bytes | None, str]]:
    deep = b"[" * DEEP + b"]" * DEEP
    return [
        (None, "empty"),
        (b'{"id":1,"at":%d,"x":' % at + deep + b"}", "not_json"),
        (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "not_json"),
        (b"x" * LARGE, "not_json"),
        (good.encode() + b"\n" + good.encode(), "not_one_object"),
        (good.encode() + b"\xc3", "not_utf8"),
        (b'{"ID":1,"SHOP":1,"AT":%d}' % at, "no_time"),
        (json.dumps({"shop": 1, "amount": 1.0, "at": "2036-11-18T10:00:00Z"}).encode(), "future"),
        (json.dumps({"shop": 1, "amount": 1.0, "at": at * 1_000_000}).encode(), "time_unit"),
    ]


def allow_large(run: Run) -> None:
    """Have the topics take records of 16 MB."""
    admin = AdminClient({"bootstrap.servers": run.stack.bootstrap})
    entry = ConfigEntry("max.message.bytes", str(16 << 20), incremental_operation=AlterConfigOpType.SET)
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, t, incremental_configs=[entry]) for t in TOPICS]
    for done in admin.incremental_alter_configs(wanted).values():
        done.result(15)


def disorderly(run: Run) -> None:
    """One partition half an hour behind, whole hours late, and transactions of which every other one is taken back."""
    number = 0
    while run.left() > 60:
        for topic in TOPICS:
            with run.sender.guard:
                for back in (30 * MINUTE, 30 * MINUTE, 7 * HOUR):
                    body = run.sender.made(run.sender.reached - back)
                    run.sender.event(topic, 1, body, kind="far behind")
        number += 1
        transaction(run, commit=number % 2 == 0)
        time.sleep(1)


def transaction(run: Run, *, commit: bool) -> None:
    """Twenty records in one transaction; those of one that is aborted were never sent."""
    client = Producer(
        {"bootstrap.servers": run.stack.bootstrap, "transactional.id": f"faults-{commit}", "log_level": 0}
    )
    client.init_transactions(30)
    client.begin_transaction()
    told: list[Sent] = []
    for _ in range(20):
        topic, partition = run.rng.choice(TOPICS), run.rng.randrange(PARTITIONS)
        with run.sender.guard:
            body = run.sender.made(run.sender.reached)
        facts = {"time": body["at"], "id": body["id"], "shop": body["shop"], "amount": body["amount"]}

        def report(error: object, message: object, facts: dict[str, object] = facts) -> None:
            place = (message.topic(), message.partition(), message.offset())  # type: ignore[attr-defined]
            told.append(Sent(place=place, broker_time=message.timestamp()[1], kind="transaction", **facts))  # type: ignore

        client.produce(topic, json.dumps(body).encode(), partition=partition, on_delivery=report)
    client.flush(30)
    if not commit:
        client.abort_transaction(30)
        return
    client.commit_transaction(30)
    run.sender.sent += told
