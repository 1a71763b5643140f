"""The counts of an ingest come from different places, and each equation between them can fail."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from changing import T0, archived_once, copied
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tally.base.errors import AnswerIsNo, TallyError
from tally.catalog.spec import Topic
from tally.control import runs
from tally.control.store import now_ms
from tally.sources import archive, ingest, kafka, reached
from tally.sources.witnesses import verification


class Died(Exception):
    """In place of a process that ends."""


def dies_at(name: str) -> Callable[[str], None]:
    def failpoint(point: str) -> None:
        if point == name:
            raise Died

    return failpoint


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


def test_what_the_archive_has_reached_is_said_at_the_end_of_a_run_and_where_nothing_is_new(
    rides: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that dies after its last commit says nothing; an idle topic is at the moment of each run all the same."""
    before = runs.reached_by_topic()[rides.name]
    assert not ingest.lacks_nothing(rides), "nine offsets wait"
    monkeypatch.setattr(ingest, "failpoint", dies_at("ingest.after_record"))
    with pytest.raises(Died):
        ingest.ingest(spark, rides)
    assert runs.reached_by_topic()[rides.name] == before
    monkeypatch.undo()
    began = now_ms()
    assert ingest.ingest(spark, rides) == [], "all was archived"
    told = runs.reached_by_topic()[rides.name]
    assert began <= told <= now_ms()
    assert reached.behind([rides.name, "none"], told) == {"none": None}
    assert reached.behind([rides.name], told + 1) == {rides.name: told}
    with pytest.raises(TallyError, match=f"archive/{rides.name} has reached") as refused:
        reached.require("trips", [rides.name], told + 1)
    assert refused.value.cure and f"archive__{rides.name}" in refused.value.cure
    assert not isinstance(refused.value, AnswerIsNo), "it may pass by itself"
    assert ingest.lacks_nothing(rides) and runs.reached_by_topic()[rides.name] > told


def test_what_is_new_in_the_middle_of_a_run_is_not_said_to_be_there(
    rides: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment is the one before Kafka was asked for its ends, however long the commits up to these take."""
    asked: list[int] = []
    whole = kafka.end_offsets

    def ends(topic: str, *patience: float) -> dict[int, int]:
        asked.append(now_ms())
        return whole(topic, *patience)

    monkeypatch.setattr(kafka, "end_offsets", ends)
    monkeypatch.setattr(ingest, "failpoint", lambda _: time.sleep(0.05))
    ingest.ingest(spark, rides)
    assert runs.reached_by_topic()[rides.name] <= asked[0]


def test_an_archive_that_is_begun_anew_has_reached_nothing_until_it_is_whole(
    rides: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(archive.path(rides))
    shutil.rmtree(archive.quarantine_path(rides))
    monkeypatch.setattr(ingest, "failpoint", dies_at("ingest.before_quarantine"))
    with pytest.raises(Died):
        ingest.ingest(spark, rides)
    assert rides.name not in runs.reached_by_topic()


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
