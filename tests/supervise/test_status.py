"""How far behind a stream is: by the age of records that wait, so neither an idle topic nor a new record is behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from definitions import write

from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.control import incidents, ledger, streams
from tally.control.store import now_ms
from tally.embedded.broker_files import free_port
from tally.supervise.status import judge_freshness

MINUTE = 60_000
TOPIC = "rides_of_fresh"


@pytest.fixture(scope="module")
def topic(broker: str) -> str:
    """Two records of an hour ago and one of now in partition 0; one of now in partition 1."""
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(15)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for partition, age in ((0, 60), (0, 59), (0, 0), (1, 0)):
        producer.produce(TOPIC, b"x", partition=partition, timestamp=now_ms() - age * MINUTE)
        producer.flush(15)
    return broker


@pytest.fixture(autouse=True)
def own_home(topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "catalogue")
    (folder / "topics.py").write_text((folder / "topics.py").read_text().replace('topic("rides"', f'topic("{TOPIC}"'))
    monkeypatch.setenv("TALLY_CATALOG", str(folder))
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TALLY_KAFKA", topic)


def applied(to: dict[int, int]) -> None:
    version = catalogue().pipeline("demand").version
    ranges = {TOPIC: {partition: (0, end) for partition, end in to.items()}}
    ledger.record(
        [
            ledger.MicroBatch(
                pipeline="demand", version=version, generation=1, batch=int(time.time_ns()), ranges=ranges,
                late_watermark=0, watermark=0, rows=1, delta_version=1, committed_at=now_ms() - 600 * MINUTE,
            )
        ]
    )  # fmt: skip


def open_now() -> list[str]:
    return [row.cause for row in incidents.opened("demand")]


def test_old_records_that_wait_are_an_incident_with_their_count_until_they_are_applied() -> None:
    assert judge_freshness() == ["demand"]
    assert "2 records that came before" in incidents.opened("demand")[0].evidence
    applied({0: 1, 1: 0})
    assert judge_freshness() == ["demand"]
    assert "1 records that came before" in incidents.opened("demand")[0].evidence
    applied({0: 2, 1: 0})
    assert judge_freshness() == [] and open_now() == []
    assert incidents.history("demand")[0].done == "the stream has caught up"


def test_a_new_record_in_a_topic_that_was_long_idle_is_not_behind() -> None:
    applied({0: 2, 1: 0})  # ten hours ago
    assert judge_freshness() == []


def test_a_stream_that_a_person_paused_is_not_behind() -> None:
    assert judge_freshness() == ["demand"]
    streams.want("demand", "paused", by="ada", why="the broker moves")
    assert judge_freshness() == [] and open_now() == []


def test_the_promise_is_a_setting_and_none_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_FRESHNESS", "2 hours")
    assert judge_freshness() == []
    monkeypatch.setenv("TALLY_FRESHNESS", "")
    assert judge_freshness() == [] and settings().freshness == ""


def test_a_silent_kafka_neither_opens_nor_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    judge_freshness()
    applied({0: 2, 1: 0})
    monkeypatch.setenv("TALLY_KAFKA", f"127.0.0.1:{free_port()}")
    assert judge_freshness() == [] and open_now() == ["stale"]
