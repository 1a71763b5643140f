"""What a checksum of rows tells apart, and what it does not: the order and the split of them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tally.catalog.declare import topic
from tally.sources.witnesses.checksum import hourly
from tally.sources.witnesses.manifest import NONE, Sums

SCHEMA = "id BIGINT, a INT, b INT, fare DOUBLE, at TIMESTAMP, trip STRUCT<seen: TIMESTAMP, tags: ARRAY<STRING>, n: INT>"
RIDES = topic("rides", schema=SCHEMA, event_time="at", lateness="1 minute")
ROW: dict[str, Any] = {
    "_partition": "0", "_offset": "7", "_broker_time": "timestamp'2026-01-01 00:00:00'", "_ingest": "3",
    "_reason": "null", "_key": "null", "_raw": "binary('x')", "id": "1", "a": "null", "b": "1", "fare": "0.1",
    "at": "timestamp'2026-01-01 00:30:00.000001'",
    "trip": "named_struct('seen', timestamp'2026-01-01 00:00:00.000001', 'tags', array('a', null), 'n', null)",
}  # fmt: skip
OTHERS: dict[str, dict[str, str]] = {
    "a value in the next column": {"a": "1", "b": "null"},
    "another offset": {"_offset": "8"},
    "another ingest": {"_ingest": "4"},
    "a microsecond": {"at": "timestamp'2026-01-01 00:30:00.000002'"},
    "a microsecond in a struct": {"trip": ROW["trip"].replace("001'", "002'")},
    "a null in a struct": {"trip": ROW["trip"].replace("'n', null", "'n', 0")},
    "a null in an array": {"trip": ROW["trip"].replace(", null)", ")", 1)},
    "a bit of a double": {"fare": "0.1 + 1.4e-17"},
    "no struct": {"trip": "null"},
}
TYPES = {"_partition": "INT", "_offset": "BIGINT", "_broker_time": "TIMESTAMP", "_ingest": "BIGINT"}
TYPES |= {"_reason": "STRING", "_key": "BINARY", "_raw": "BINARY"} | {field.name: field.type for field in RIDES.schema}


def rows(spark: SparkSession, *changes: dict[str, str]) -> DataFrame:
    def one(change: dict[str, str]) -> str:
        values = {**ROW, **change}.items()
        return ", ".join(f"CAST({value} AS {TYPES[name]}) AS {name}" for name, value in values)

    return spark.sql(" UNION ALL ".join(f"SELECT {one(change)}" for change in changes))


def total(frame: DataFrame) -> Sums:
    found = NONE
    for row in hourly(frame, RIDES).collect():
        found = found.plus(Sums.of(row))
    return found


@pytest.fixture(scope="module")
def told(spark: SparkSession) -> dict[str, Sums]:
    """The sums of the row as it is, and of each change of it."""
    return {name: total(rows(spark, change)) for name, change in {"as it is": {}, **OTHERS}.items()}


@pytest.mark.parametrize("name", OTHERS)
def test_a_row_that_differs_has_another_sum(told: dict[str, Sums], name: str) -> None:
    assert told[name].rows != told["as it is"].rows


def test_neither_order_nor_files_matter(spark: SparkSession) -> None:
    changes = [{"_offset": str(at), "fare": str(at / 7)} for at in range(6)]
    forward, backward = rows(spark, *changes), rows(spark, *reversed(changes)).repartition(3)
    assert total(forward) == total(backward)
    assert total(forward) != total(rows(spark, *changes, changes[0])), "one of them twice"
