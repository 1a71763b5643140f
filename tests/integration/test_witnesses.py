"""The archive is harmed behind Tally's back, and a record more is ingested: nothing is stated, the harm is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import world as worlds
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from world import MINUTE, SECOND, T0, Record, World

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.batch.maintain import maintain
from tally.jobs.batch import batch
from tally.lake import delta
from tally.sources import archive
from tally.sources.ingest import ingest
from tally.sources.witnesses import verification

NAME = "tumbling"
Harm = Callable[[DeltaTable, DataFrame, str], None]


def delete(table: DeltaTable, _: DataFrame, row: str) -> None:
    table.delete(row)


def double(table: DeltaTable, rows: DataFrame, row: str) -> None:
    rows.where(row).write.format("delta").mode("append").save(rows.inputFiles()[0].split("/_date=")[0])


def change(column: str, to: Any) -> Harm:
    return lambda table, _, row: table.update(row, {column: F.lit(to)})


@pytest.fixture(scope="module")
def made(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        world = worlds.make(tmp_path_factory.mktemp("witnesses"), "witnesses.", broker, patch, [NAME])
        yield world


def produce(world: World, first: int, count: int, late: int = 0) -> None:
    records = []
    for at in range(first, first + count):
        time = T0 + at * 20 * SECOND - late
        records.append(
            Record(f"{world.prefix}orders", at % 2, T0 + at * 20 * SECOND, *worlds.order(at, time, at, 1, 2.5))
        )
    world.produce(records)


def test_ingest_says_what_it_wrote(made: World, spark: SparkSession) -> None:
    topic = made.pipeline(NAME).reads[0]
    produce(made, 0, 30)
    made.produce([Record(topic.name, 0, T0, b"{")])
    made.batch(NAME)
    produce(made, 30, 1, late=10 * MINUTE)
    ingest(spark, topic)
    assert verification.verify(spark, verification.Extent(topic=topic, deep=True)) == []
    span = (T0, T0 + 20 * MINUTE)
    assert verification.verify(spark, verification.Extent(topic=topic, ranges=[span])) == []
    for place, path in (("archive", archive.path(topic)), ("quarantine", archive.quarantine_path(topic))):
        rows = spark.read.format("delta").load(path)
        assert set(archive.SKIPPED_BY) < set(rows.columns), place
        assert rows.where("_contract IS NULL").count() == 0


HARMS = [
    (delete, "lost 1"),
    (double, "1 too many"),
    (change("amount", 7777.0), "content differs"),
    (change("amount", None), "content differs"),
    (change("_ingest", 0), "lost 1"),
    (change("_broker_time", "2026-01-01 00:00:00"), "content differs"),
    (change("_offset", 10_000), "content differs"),
    (change("at", "2026-01-01 00:00:00"), "lost 1"),
]
VICTIM = "_partition = 0 AND _offset = 16"


def test_whatever_is_done_to_a_row_is_named(made: World, spark: SparkSession) -> None:
    topic = made.pipeline(NAME).reads[0]
    table = DeltaTable.forPath(spark, archive.path(topic))
    whole = table.history(1).first()["version"]
    for harm, says in HARMS:
        harm(table, spark.read.format("delta").load(archive.path(topic)), VICTIM)
        for found in (
            verification.verify(spark, verification.Extent(topic=topic, ranges=[(T0, T0 + MINUTE)])),
            verification.verify(spark, verification.Extent(topic=topic, since=0)),
        ):
            named = [one for one in found if says in str(one) and (one.first, one.partition) == (16, 0)]
            assert named and named[0].seq == 1, (says, HARMS.index((harm, says)), found)
        table.restoreToVersion(whole)
    assert verification.verify(spark, verification.Extent(topic=topic)) == []


@pytest.mark.parametrize(("harm", "says"), HARMS[:2])
def test_nothing_is_stated_from_an_archive_that_was_harmed(
    made: World, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Harm, says: str
) -> None:
    """Also where what is asked for lies elsewhere: of the late event that is gone nothing else would tell."""
    shutil.copytree(settings().home, tmp_path / "home")
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    topic = made.pipeline(NAME).reads[0]
    harm(DeltaTable.forPath(spark, archive.path(topic)), spark.read.format("delta").load(archive.path(topic)), VICTIM)
    produce(made, 100 + made.ends[topic.name, 1], 1)
    with pytest.raises(AnswerIsNo, match=says) as told:
        batch(NAME, iso(from_millis(T0 + 30 * MINUTE)), iso(from_millis(T0 + 40 * MINUTE)))
    assert f"topic {topic.name}, partition 0, offsets [16, 17): {says}" in str(told.value)
    assert told.value.pipeline == NAME and f"tally mend {topic.name}" in str(told.value.cure)


def test_compaction_changes_no_row(made: World, spark: SparkSession) -> None:
    topic = made.pipeline(NAME).reads[0]
    assert [done.joined > 1 for done in maintain(spark) if done.table == f"archive/{topic.name}"] == [True]
    assert verification.verify(spark, verification.Extent(topic=topic, deep=True)) == []
    assert not [file for file in delta.table(archive.path(topic)).file_uris() if ".zstd." not in file]
