"""What archive or quarantine lost or gained is put right from Kafka, while that holds it; else it is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changing import PLAIN, archived_once, check, copied, define, killed
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.base.errors import AnswerIsNo
from tally.catalog.spec import Topic
from tally.lake import delta
from tally.sources import archive
from tally.sources.mend import mend
from tally.sources.witnesses import verification


@pytest.fixture(scope="module")
def made(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with archived_once(broker, spark, tmp_path_factory.mktemp("mended"), "mended") as folder:
        yield folder


@pytest.fixture
def rides(made: Path, broker: str, tmp_path: Path) -> Iterator[Topic]:
    with copied(made, tmp_path, broker) as topic:
        yield topic


def table(spark: SparkSession, topic: Topic) -> DeltaTable:
    return DeltaTable.forPath(spark, archive.path(topic))


def lose_one_and_change_one(spark: SparkSession, topic: Topic) -> None:
    table(spark, topic).delete("id = 3")
    table(spark, topic).update("id = 4", {"_value": F.lit("{}").cast("binary")})


def double_one_and_invent_one(spark: SparkSession, topic: Topic) -> None:
    rows = spark.read.format("delta").load(archive.path(topic))
    more = rows.where("id = 1").unionByName(rows.where("id = 4").withColumn("_offset", F.lit(10**6).cast("long")))
    more.write.format("delta").mode("append").save(archive.path(topic))


def lose_a_refused_one(spark: SparkSession, topic: Topic) -> None:
    DeltaTable.forPath(spark, archive.quarantine_path(topic)).delete("_reason = 'wrong_type'")


def test_what_differs_is_read_again(rides: Topic, spark: SparkSession) -> None:
    for harm in (lose_a_refused_one, double_one_and_invent_one, lose_one_and_change_one):
        harm(spark, rides)
        assert verification.verify(spark, verification.Extent(topic=rides, deep=True))
        if harm is not double_one_and_invent_one:
            assert mend(spark, rides).found
    check(spark, rides)
    assert mend(spark, rides).read == {}


def test_a_mend_that_dies_is_done_again(rides: Topic, spark: SparkSession) -> None:
    lose_one_and_change_one(spark, rides)
    lose_a_refused_one(spark, rides)
    killed("mend.between_quarantine_and_archive", "mend", rides.name)
    assert verification.verify(spark, verification.Extent(topic=rides, deep=True))
    mend(spark, rides)
    check(spark, rides)


def files_of(where: str) -> list[Path]:
    found = delta.table(where)
    assert found is not None
    return [Path(uri) for uri in found.file_uris()]


def test_files_that_are_gone_or_broken_are_read_again(rides: Topic, spark: SparkSession) -> None:
    """One of two files of the archive is gone, the other one cut short, and of the quarantine a byte is another."""
    first, second = files_of(archive.path(rides))[:2]
    refused = max(files_of(archive.quarantine_path(rides)), key=lambda file: file.stat().st_size)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-20])
    held = bytearray(refused.read_bytes())
    held[40] ^= 0xFF
    refused.write_bytes(held)
    with pytest.raises(AnswerIsNo, match="a file of archive/mended cannot be read") as told:
        verification.check(spark, verification.Extent(topic=rides))
    assert "tally mend mended" in str(told.value.cure)
    killed("mend.before_taking_out", "mend", rides.name)
    done = mend(spark, rides)
    assert len(done.unreadable) >= 2 and done.found
    check(spark, rides)
    assert mend(spark, rides).unreadable == []


def test_a_contract_that_changed_meanwhile(rides: Topic, spark: SparkSession) -> None:
    """Nothing is decoded under it before all is there, and what is there is then decoded."""
    from tally.sources.redecode import ensure_current

    lose_one_and_change_one(spark, rides)
    changed = define(rides.name, f"{PLAIN.replace(' NOT NULL', '')}, tip DOUBLE")
    with pytest.raises(AnswerIsNo, match=r"topic mended, partition \d, offsets \[\d, \d\): lost 1") as told:
        ensure_current(spark, changed)
    assert "tally mend mended" in str(told.value.cure)
    mend(spark, changed)
    check(spark, changed)
    assert spark.read.format("delta").load(archive.path(changed)).where("tip = 0.5").count() == 1


def test_what_kafka_has_no_more_is_refused_with_its_range(
    rides: Topic, spark: SparkSession, broker: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The last test here: the topic is shorter after it."""
    from tally.cli.app import run

    admin = AdminClient({"bootstrap.servers": broker})
    admin.delete_records([TopicPartition(rides.name, 1, 2)])[TopicPartition(rides.name, 1)].result(15)
    table(spark, rides).delete("id = 3")
    lose_a_refused_one(spark, rides)
    assert run(["mend", rides.name]) == 1
    said = capfd.readouterr().out
    assert "topic mended, partition 1, offsets [1, 2)" in said and "Kafka does not hold it any more" in said
    (left,) = verification.verify(spark, verification.Extent(topic=rides, deep=True))
    assert (left.place, left.partition, left.first, left.to, left.lost) == ("archive", 1, 1, 2, 1)
