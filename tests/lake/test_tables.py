"""A new table is the same whoever makes it, and a name that Spark refuses is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
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
    tables.make_table(spark, str(tmp_path / "made"), shape, PROPERTIES)
    monkeypatch.setattr(tables, "is_plain", lambda kind: False)
    tables.make_table(spark, str(tmp_path / "spark"), shape, PROPERTIES)
    assert told(tmp_path / "made") == told(tmp_path / "spark")


def test_a_table_that_is_there_stays_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "table")
    shape = spark.createDataFrame([], "a INT, _date DATE")
    tables.make_table(spark, where, shape, PROPERTIES)
    shape.write.format("delta").mode("append").save(where)
    before = delta.version(where)
    tables.make_table(spark, where, shape, PROPERTIES)
    assert delta.version(where) == before


@pytest.mark.parametrize("ddl", ["`a b` INT", "a STRUCT<`b,c`: INT>"])
def test_a_name_that_spark_refuses_is_refused(spark: SparkSession, tmp_path: Path, ddl: str) -> None:
    shape = spark.createDataFrame([], f"{ddl}, _date DATE")
    with pytest.raises(AnalysisException, match="INVALID_CHARACTERS"):
        tables.make_table(spark, str(tmp_path / "table"), shape, PROPERTIES)
