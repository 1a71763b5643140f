"""A topic that is not the one it was, and offsets that are gone, are told with topic, partition and range."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import CommitProperties, write_deltalake

from tally.base.errors import DataLost, TallyError
from tally.base.settings import settings
from tally.lake import delta
from tally.sources import kafka


@pytest.fixture
def admin(broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminClient]:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.setenv("TALLY_KAFKA", broker)
    client = AdminClient({"bootstrap.servers": broker})
    yield client
    client.delete_topics(["lost"])["lost"].exception(15)


def create(admin: AdminClient, broker: str, records: int) -> None:
    """A topic of two partitions with so many records in its second."""
    admin.create_topics([NewTopic("lost", 2, 1, config={"retention.ms": "-1"})])["lost"].result(15)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for at in range(records):
        producer.produce("lost", str(at).encode(), partition=1)
    assert producer.flush(15) == 0


def test_offsets_are_those_of_the_broker(admin: AdminClient, broker: str) -> None:
    create(admin, broker, 7)
    assert kafka.begin_offsets("lost") == {0: 0, 1: 0}
    assert kafka.end_offsets("lost") == {0: 0, 1: 7}
    kafka.check_retained("lost", {0: 0, 1: 7}, {0: 0, 1: 7}, "demand")


def test_what_retention_ate_is_told_with_its_range(admin: AdminClient, broker: str) -> None:
    create(admin, broker, 7)
    kafka.check_retained("lost", {1: 2}, {1: 2}, "demand")
    admin.delete_records([TopicPartition("lost", 1, 5)])[TopicPartition("lost", 1)].result(15)
    with pytest.raises(DataLost, match=r"topic lost, partition 1, offsets \[2, 5\)") as raised:
        kafka.check_retained("lost", {0: 0, 1: 2}, {0: 0, 1: 2}, "demand")
    assert raised.value.pipeline == "demand" and raised.value.cure and raised.value.exit_code == 1
    kafka.check_retained("lost", {1: 5}, {1: 5}, "demand")


def test_every_partition_of_which_retention_ate_is_told(admin: AdminClient, broker: str) -> None:
    create(admin, broker, 7)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for at in range(4):
        producer.produce("lost", str(at).encode(), partition=0)
    assert producer.flush(15) == 0
    for future in admin.delete_records([TopicPartition("lost", 0, 3), TopicPartition("lost", 1, 5)]).values():
        future.result(15)
    with pytest.raises(DataLost, match=r"partition 0, offsets \[1, 3\); topic lost, partition 1, offsets \[2, 5\)"):
        kafka.check_retained("lost", {0: 1, 1: 2}, {0: 1, 1: 2}, "demand")


def test_a_recreated_topic_is_another_one_even_where_it_is_longer(admin: AdminClient, broker: str) -> None:
    create(admin, broker, 3)
    first = kafka.check_identity("lost")
    assert kafka.check_identity("lost") == first
    admin.delete_topics(["lost"])["lost"].result(15)
    create(admin, broker, 9)
    with pytest.raises(DataLost, match="recreated") as raised:
        kafka.check_identity("lost")
    assert raised.value.field == "lost" and raised.value.cure


def test_offsets_that_went_back_are_told(admin: AdminClient, broker: str) -> None:
    create(admin, broker, 3)
    with pytest.raises(DataLost, match=r"lost, partition 1 ends at 3.*\[0, 8\)"):
        kafka.check_retained("lost", {1: 8}, {1: 8}, "demand")


def test_a_topic_that_is_not_there_is_said_with_its_cure(admin: AdminClient, broker: str) -> None:
    with pytest.raises(TallyError, match="no such topic") as raised:
        kafka.end_offsets("never")
    assert raised.value.cure and "tally up" in raised.value.cure
    create(admin, broker, 0)


def test_committed_records_are_counted_where_offsets_hold_none(admin: AdminClient, broker: str) -> None:
    create(admin, broker, 3)
    producer = Producer({"bootstrap.servers": broker, "transactional.id": "lost"})
    producer.init_transactions(15)
    for records, commit in ((5, True), (4, False), (2, True)):
        producer.begin_transaction()
        for at in range(records):
            producer.produce("lost", str(at).encode(), partition=at % 2)
        producer.flush(15)  # an abort would drop what is not sent yet
        (producer.commit_transaction if commit else producer.abort_transaction)(15)
    offsets, deadline = 3 + 5 + 4 + 2 + 6, time.monotonic() + 15  # each transaction leaves a marker in each partition
    while sum((ends := kafka.end_offsets("lost")).values()) < offsets and time.monotonic() < deadline:
        time.sleep(0.1)  # a coordinator writes them after it has answered
    assert sum(ends.values()) == offsets
    assert kafka.count_records("lost", {p: (0, end) for p, end in ends.items()}) == 10
    assert kafka.count_records("lost", {1: (1, 4)}) == 3
    assert kafka.count_records("lost", {0: (0, 0)}) == 0


def test_a_new_control_store_knows_the_topic_by_its_archive(
    admin: AdminClient, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(admin, broker, 3)
    first = kafka.check_identity("lost")
    said = CommitProperties(custom_metadata={"userMetadata": delta.words("ingest", topic_id=first)})
    write_deltalake(settings().table("archive", "lost"), pa.table({"n": [1]}), commit_properties=said)
    monkeypatch.setenv("TALLY_CONTROL", f"sqlite:///{tmp_path / 'new.db'}")
    assert kafka.check_identity("lost") == first
    admin.delete_topics(["lost"])["lost"].result(15)
    create(admin, broker, 3)
    monkeypatch.setenv("TALLY_CONTROL", f"sqlite:///{tmp_path / 'newer.db'}")
    for _ in range(2):
        with pytest.raises(DataLost, match=re.escape(f"id {first}, now")):
            kafka.check_identity("lost")
