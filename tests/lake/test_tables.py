"""A new table is the same whoever makes it, and a name that Spark refuses is refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tally.lake import delta, tables

PROPERTIES = {
    "delta.logRetentionDuration": "interval 30 days",
    "delta.checkpointInterval": "77",
    "delta.dataSkippingNumIndexedCols": "4",
}


def told(where: Path) -> dict[str, Any]:
    """What the first entry of a table's log says of it."""
    actions: dict[str, Any] = {}
    for line in (where / "_delta_log" / f"{0:020}.json").read_text().splitlines():
        actions |= json.loads(line)
    metadata = actions["metaData"]
    return {
        "protocol": actions["protocol"],
        "columns": json.loads(metadata["schemaString"]),
        "by": metadata["partitionColumns"],
        "properties": metadata["configuration"],
    }


@pytest.mark.parametrize(
    ("ddl", "plain"),
    [
        ("a TINYINT, b SMALLINT, c INT NOT NULL, d BIGINT, e FLOAT, f DOUBLE, g BOOLEAN, h STRING, i BINARY", True),
        ("a DECIMAL(38, 18), b TIMESTAMP, window STRUCT<start: TIMESTAMP, end: TIMESTAMP>", True),
        ("a ARRAY<STRUCT<b: MAP<STRING, ARRAY<DATE>>>>, `b.c` STRING COMMENT 'some', `größe` INT", True),
        ("a TIMESTAMP_NTZ", False),
        ("a ARRAY<STRUCT<b: VARIANT>>", False),
    ],
)
def test_a_new_table_is_the_one_that_spark_makes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ddl: str, plain: bool
) -> None:
    shape = spark.createDataFrame([], f"{ddl}, _date DATE")
    assert tables.is_plain(json.loads(shape._jdf.schema().json())) is plain
    tables.make_table(spark, str(tmp_path / "made"), shape.schema, PROPERTIES)
    monkeypatch.setattr(tables, "is_plain", lambda kind: False)
    tables.make_table(spark, str(tmp_path / "spark"), shape.schema, PROPERTIES)
    assert told(tmp_path / "made") == told(tmp_path / "spark")


def test_a_table_that_is_there_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "table")
    shape = spark.createDataFrame([], "a INT, _date DATE")
    tables.make_table(spark, where, shape.schema, PROPERTIES)
    shape.write.format("delta").mode("append").save(where)
    before = delta.version(where)
    tables.make_table(spark, where, shape.schema, PROPERTIES)
    assert delta.version(where) == before


@pytest.mark.parametrize("ddl", ["`a b` INT", "a STRUCT<`b,c`: INT>"])
def test_a_name_that_spark_refuses_is_refused(spark: SparkSession, tmp_path: Path, ddl: str) -> None:
    shape = spark.createDataFrame([], f"{ddl}, _date DATE")
    with pytest.raises(AnalysisException, match="INVALID_CHARACTERS"):
        tables.make_table(spark, str(tmp_path / "table"), shape.schema, PROPERTIES)


def test_a_table_that_is_long_open_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else commits beside it; and each commit is told as the log tells it."""
    where, read_anew, times = str(tmp_path / "table"), tables.read_anew, list[int]()

    def counted(table: DeltaTable) -> None:
        read_anew(table)
        times.append(int(table.version()))

    monkeypatch.setattr(tables, "READ_ANEW_EVERY", 10)
    monkeypatch.setattr(tables, "read_anew", counted)
    rows = pa.table({"n": [1]})
    write_deltalake(where, rows)
    table = DeltaTable(where)
    for number in range(1, 32):
        if number % 8 == 0:
            write_deltalake(where, rows, mode="append")  # so that a tenth one may be another's
        version = tables.append_arrow(rows, table, delta.words("micro-batch", batch=number))
        told = delta.commit_at(table, version)
        assert told == next(delta.commits(where)) and (told.version, told.words["batch"]) == (version, number)
    assert times == [10, 20, 30] and DeltaTable(where).to_pyarrow_table().num_rows == 35


def test_a_sweep_deletes_what_is_old_and_named_by_nothing_and_commits_nothing(tmp_path: Path) -> None:
    where, rows = str(tmp_path / "table"), pa.table({"n": [1, 2], "_date": ["2026-01-05", "2026-01-06"]})
    log = {name: "interval 0 seconds" for name in ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")}
    write_deltalake(where, rows, partition_by=["_date"], configuration=log)
    first = DeltaTable(where).file_uris()
    write_deltalake(where, rows, mode="overwrite")
    stray = Path(first[0]).with_name("stray.parquet")
    stray.write_bytes(b"written, not committed yet")
    DeltaTable(where).create_checkpoint()
    version, now = DeltaTable(where).version(), time.time()
    assert tables.sweep(where, 24) == 0
    for file in [*first, *DeltaTable(where).file_uris()]:
        os.utime(Path(file), (now - 90_000, now - 90_000))
    assert tables.sweep(where, 24) == 2 and tables.sweep(where, 24) == 0
    assert not any(Path(file).exists() for file in first) and stray.exists()
    assert DeltaTable(where).to_pyarrow_table().num_rows == 2 and DeltaTable(where).version() == version
