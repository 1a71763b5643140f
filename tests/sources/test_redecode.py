"""A topic's contract changes, from Kafka in to rows out: what was archived is decoded again, refused records too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changing import (
    COUNT,
    MINUTE,
    PLAIN,
    T0,
    archived,
    archived_once,
    check,
    copied,
    define,
    killed,
    refused,
    rows,
)
from pyspark.sql import SparkSession

from tally.base.duration import from_millis, iso, to_millis
from tally.base.errors import AnswerIsNo
from tally.batch.maintain import targets
from tally.catalog.spec import Topic
from tally.control import runs
from tally.sources import archive, redecode
from tally.sources.ingest import ingest
from tally.sources.witnesses import verification


@pytest.fixture(scope="module")
def made(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with archived_once(broker, spark, tmp_path_factory.mktemp("contracts"), "contracts") as folder:
        yield folder


@pytest.fixture
def rides(made: Path, broker: str, tmp_path: Path) -> Iterator[Topic]:
    with copied(made, tmp_path, broker) as topic:
        yield topic


def test_a_column_that_need_not_be_there_any_more(rides: Topic, spark: SparkSession) -> None:
    assert refused(spark, rides) == {"2": "missing:zone", "5": "future", "6": "wrong_type"}
    assert [(row["zone"], row["n"]) for row in rows()] == [(1, 1), (1, 1), (1, 1)]
    relaxed = define(rides.name, PLAIN.replace(" NOT NULL", ""))
    assert [(row["zone"], row["n"]) for row in rows()] == [(1, 1), (None, 1), (1, 1), (1, 1)]
    assert refused(spark, relaxed) == {"5": "future", "6": "wrong_type"}
    check(spark, relaxed)
    back = define(rides.name)
    assert [(row["zone"], row["n"]) for row in rows()] == [(1, 1), (1, 1), (1, 1)], "tightened again"
    assert refused(spark, back)["2"] == "missing:zone"
    check(spark, back)


def test_a_column_more_has_the_values_that_old_records_carry(rides: Topic, spark: SparkSession) -> None:
    measures = f'{COUNT}, F.sum("tip").alias("tips")'
    wider = define(rides.name, f"{PLAIN}, tip DOUBLE, note STRING", measures=measures)
    assert [(row["n"], row["tips"]) for row in rows()] == [(1, None), (1, 0.5), (1, None)]
    check(spark, wider)


def test_a_column_of_another_type(rides: Topic, spark: SparkSession) -> None:
    text = define(rides.name, PLAIN.replace("DOUBLE", "STRING"), measures='F.max("fare").alias("f")')
    assert [row["f"] for row in rows()] == ["1.5", "3.5", "x", "4.5"]
    assert archived(spark, text)[6]["fare"] == "x"
    check(spark, text)


def test_another_event_time_is_what_files_are_skipped_by(rides: Topic, spark: SparkSession) -> None:
    schema = PLAIN.replace("at TIMESTAMP", "seen TIMESTAMP")
    other = define(rides.name, schema, time="seen")
    assert [row["n"] for row in rows()] == [1]
    assert refused(spark, other)["1"] == "no_time"
    found = spark.sql(f"SHOW TBLPROPERTIES delta.`{archive.path(other)}`").collect()
    assert dict(found)["delta.dataSkippingStatsColumns"].endswith(",_ingest,seen")
    check(spark, other)


def test_a_skew_that_changes_takes_records_in_and_out(
    rides: Topic, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No version tells of it, and no late event: the windows that it touches are stated again all the same."""
    assert len(rows()) == 3
    for skew, ids, minutes in (("10 minutes", {1, 3, 4, 5}, [0, 1, 4, 9]), ("1 minute", {1, 3}, [0, 1])):
        monkeypatch.setenv("TALLY_SKEW", skew)
        stated = [to_millis(row["window_start"]) for row in rows(30, 40)]
        assert stated == [T0 + at * MINUTE for at in minutes]
        assert archived(spark, rides).keys() == ids
        check(spark, rides)


def test_rows_without_bytes_cannot_be_decoded_again(
    rides: Topic, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("TALLY_ARCHIVE_BYTES", "false")
    ingest(spark, rides)
    assert verification.verify(spark, verification.Extent(topic=rides, deep=True)) == []
    kept = spark.read.format("delta").load(archive.path(rides))
    assert [(row["_key"], row["_value"]) for row in kept.collect()] == [(None, None)] * 3
    changed = define(rides.name, f"{PLAIN}, tip DOUBLE")
    with pytest.raises(AnswerIsNo, match="3 archived records have no bytes") as told:
        ingest(spark, changed)
    assert told.value.field == rides.name and f"move archive/{rides.name}" in str(told.value.cure)


def test_an_archive_of_an_older_layout_is_refused_with_its_cure(
    rides: Topic, spark: SparkSession, tmp_path: Path
) -> None:
    for path in (archive.path(rides), archive.quarantine_path(rides)):
        older = spark.read.format("delta").load(path).drop("_contract")
        spark.sql(f"DROP TABLE IF EXISTS delta.`{path}`")
        older.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("_date").save(path)
    for act in (ingest, redecode.ensure_current):
        with pytest.raises(AnswerIsNo, match="layout of an older Tally") as told:
            act(spark, rides)
        assert f"move archive/{rides.name}" in str(told.value.cure)
    for layer in ("archive", "quarantine"):
        (tmp_path / "home" / "lake" / layer).rename(tmp_path / layer)
    (done,) = ingest(spark, rides)
    assert (done.seq, done.archived, sum(done.quarantined.values())) == (2, 3, 3), "all again, counted on"
    assert [row.seq for row in runs.ingest_history(rides.name)] == [2]
    assert verification.verify(spark, verification.Extent(topic=rides, deep=True)) == []


@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param("redecode.before_quarantine", marks=pytest.mark.long),
        "redecode.between_quarantine_and_archive",
        pytest.param("redecode.after_archive", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("then", ["goes on", pytest.param("the contract changes again", marks=pytest.mark.long)])
def test_a_redecode_that_dies_is_gone_on_with(
    rides: Topic, spark: SparkSession, tmp_path: Path, failpoint: str, then: str
) -> None:
    changed = define(rides.name, f"{PLAIN.replace(' NOT NULL', '')}, tip DOUBLE")
    words = ["batch", "demand", "--from", iso(from_millis(T0)), "--to", iso(from_millis(T0 + 9 * MINUTE))]
    killed(failpoint, *words)
    tidied = {target.table[0] for target in targets()}
    assert ("archive" in tidied) == ("between" not in failpoint), "VACUUM would take what it goes on from"
    if then != "goes on":
        changed = define(rides.name, f"{PLAIN}, note STRING")
    redecode.ensure_current(spark, changed)
    assert archived(spark, changed).keys() == ({1, 2, 3, 4} if then == "goes on" else {1, 3, 4})
    check(spark, changed)
    assert ingest(spark, changed) == []
