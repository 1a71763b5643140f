"""The counts of an ingest come from different places, and each equation between them can fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changing import T0, archived_once, copied
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tally.base.errors import AnswerIsNo
from tally.catalog.spec import Topic
from tally.control import runs
from tally.sources import archive, ingest, kafka
from tally.sources.witnesses import verification


@pytest.fixture(scope="module")
def made(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with archived_once(broker, spark, tmp_path_factory.mktemp("counted"), "counted") as folder:
        producer = Producer({"bootstrap.servers": broker, "transactional.id": "counted"})
        producer.init_transactions(15)
        for records, commit in ((3, True), (2, False)):
            producer.begin_transaction()
            for at in range(records):
                producer.produce("counted", b'{"id": 9, "zone": 1, "at": %d}' % T0, partition=at % 2, timestamp=T0)
            producer.flush(15)
            (producer.commit_transaction if commit else producer.abort_transaction)(15)
        yield folder


@pytest.fixture
def rides(made: Path, broker: str, tmp_path: Path) -> Iterator[Topic]:
    with copied(made, tmp_path, broker) as topic:
        yield topic


def test_offsets_without_a_record_are_counted_by_kafka(rides: Topic, spark: SparkSession) -> None:
    """Three records, two that were aborted, and a marker at each end of a transaction in each partition."""
    (done,) = ingest.ingest(spark, rides)
    assert (done.records, done.archived, done.quarantined, done.gaps) == (9, 3, {}, 6)
    assert runs.ingest_history(rides.name)[-1].gaps == 6
    assert verification.verify(spark, verification.Extent(topic=rides, deep=True)) == []


@pytest.mark.parametrize("kafkas", [2, 4])
def test_kafka_counts_other_records_than_spark_read(
    rides: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kafkas: int
) -> None:
    monkeypatch.setattr(kafka, "count_records", lambda *_: kafkas)
    with pytest.raises(AnswerIsNo, match=f"Kafka holds {kafkas} committed records in offsets .*, and 3 of them"):
        ingest.ingest(spark, rides)
    last = archive.progress(rides)
    assert last is not None and last.seq == 1, "nothing was archived"


def test_delta_writes_other_rows_than_were_counted(
    rides: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told at once, and again by whoever asks the manifest later: the commit stands."""
    whole = archive.archive_rows
    monkeypatch.setattr(archive, "archive_rows", lambda records, topic: whole(records, topic).where("_partition = 1"))
    with pytest.raises(AnswerIsNo, match="3 rows were counted for archive/counted, and its version 3 holds 1"):
        ingest.ingest(spark, rides)
    monkeypatch.undo()
    with pytest.raises(AnswerIsNo, match=r"partition 0, offsets .*: lost 2 \(archive, ingest 2\)"):
        verification.check(spark, verification.Extent(topic=rides))
