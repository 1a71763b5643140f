"""A catalogue of a test's own on the session's broker: topics and functions as text, and both layers run on them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tally.base.duration import from_millis, iso
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.control import runs, seals

MINUTE = 60_000
T0 = 1_767_600_000_000
HEAD = """
from pyspark.sql import functions as F
from tally import events, hopping, pipeline, session, tumbling
from topics import *

"""


@dataclass
class Bespoke:
    """One home with its catalogue; records go where the test says, at the broker time that it says."""

    folder: Path
    broker: str
    ends: dict[tuple[str, int], int] = field(default_factory=dict)

    def send(self, topic: str, body: Any, *, at: int | None = None, partition: int = 0) -> int:
        """One record, as bytes or as JSON, at its own time where no broker time is given; its offset."""
        at = at if at is not None else body["at"] if isinstance(body, dict) else T0
        value = body if isinstance(body, bytes) else json.dumps(body).encode()
        producer = Producer({"bootstrap.servers": self.broker, "enable.idempotence": True})
        producer.produce(topic, value, partition=partition, timestamp=at)
        assert producer.flush(30) == 0
        offset = self.ends.get((topic, partition), 0)
        self.ends[topic, partition] = offset + 1
        return offset

    def stream(self, *names: str) -> None:
        from tally.speed.driver import Driver

        assert Driver(list(names or catalogue().pipelines), until_caught_up=True).run() == []

    def batch(self, name: str, start: int = T0 - 60 * MINUTE, end: int = T0 + 600 * MINUTE) -> None:
        from tally.jobs.batch import batch

        batch(name, iso(from_millis(start)), iso(from_millis(end)))

    def reconcile(self, name: str, start: int | None = None, end: int | None = None) -> dict[str, Any]:
        """Compare, judge and seal, a range or what is due; the comparison's summary with its verdict."""
        from tally.reconcile.compare import compare
        from tally.reconcile.judge import judge
        from tally.reconcile.seal import seal

        edges = [None if edge is None else iso(from_millis(edge)) for edge in (start, end)]
        number = compare(name, *edges)
        judge(number)
        seal(number)
        row = runs.reconciliation(number)
        assert row is not None
        return dict(row.summary)

    def served(self, name: str) -> list[dict[str, Any]]:
        """What `tally read` gives."""
        from tally.serving.read import read

        rows: list[dict[str, Any]] = read(catalogue().pipeline(name)).to_pylist()
        return rows

    def path(self, layer: str, name: str) -> str:
        return settings().table(layer, name, catalogue().pipeline(name).version)

    def seals(self, name: str) -> dict[int, seals.Seal]:
        return {seal.slot_start: seal for seal in seals.read(name, catalogue().pipeline(name).version)}


def make(
    folder: Path, broker: str, patch: pytest.MonkeyPatch, topics: str, pipelines: dict[str, str], **config: str
) -> Bespoke:
    """A home whose topics are on the broker; their names must be the test's own."""
    where = folder / "catalogue"
    (where / "pipelines").mkdir(parents=True)
    (where / "topics.py").write_text("from tally import topic\n\n" + topics)
    for name, text in pipelines.items():
        (where / "pipelines" / f"{name}.py").write_text(HEAD + text)
    patch.setenv("TALLY_CATALOG", str(where))
    patch.setenv("TALLY_HOME", str(folder / "home"))
    patch.setenv("TALLY_KAFKA", broker)
    options = {"retention.ms": "-1", "message.timestamp.type": "CreateTime", **config}
    known = catalogue()
    assert not known.broken, known.broken
    wanted = [NewTopic(one.name, one.partitions, 1, config=options) for one in known.topics.values()]
    admin = AdminClient({"bootstrap.servers": broker})
    for made in admin.create_topics(wanted).values():
        made.result(15)
    return Bespoke(folder, broker)
