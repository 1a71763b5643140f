"""Any bytes give a row or a reason, and in a stream the same as in a batch."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from tally import topic
from tally.sources.records.decode import decode

TAKEN_AT = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
MS = int(TAKEN_AT.timestamp() * 1000)
GOOD: dict[str, Any] = {"id": 1, "zone": 2, "fare": 10.5, "note": "x", "cost": 1.25, "paid": True, "at": MS, "seen": MS}
RIDES = topic(
    "rides",
    schema="""
        id BIGINT, zone INT, fare DOUBLE, note STRING, cost DECIMAL(10,2), paid BOOLEAN, at TIMESTAMP, seen TIMESTAMP
    """,
    event_time="at",
    lateness="10 minutes",
    unique="id",
)


def wire(**changed: Any) -> bytes:
    return json.dumps({**GOOD, **changed}).encode()


def without(*names: str) -> bytes:
    return json.dumps({k: v for k, v in GOOD.items() if k not in names}).encode()


REFUSED: dict[str, tuple[bytes | None, str]] = {
    "null": (None, "empty"),
    "no bytes": (b"", "empty"),
    "blanks": (b"  \n", "empty"),
    "no JSON": (b"hello", "not_json"),
    "cut short": (wire()[:-5], "not_json"),
    "cut in a string": (b'{"id":1,"note":"x', "not_json"),
    "garbage behind": (wire() + b" x", "not_one_object"),
    "garbage before": (b"x" + wire(), "not_json"),
    "bad UTF-8 in a value": (b'{"id":1,"at":%d,"note":"\xff\xfe"}' % MS, "not_utf8"),
    "bad UTF-8 at the end": (wire() + b"\xc3", "not_utf8"),
    "two objects": (wire() + wire(), "not_one_object"),
    "two objects, comma": (wire() + b"," + wire(id=2), "not_one_object"),
    "two objects, line break": (wire() + b"\n" + wire(id=2), "not_one_object"),
    "comma behind": (wire() + b",", "not_one_object"),
    "a way out of the array": (wire() + b'],"x":[1', "not_one_object"),
    "another way out": (wire() + b'],"r":[' + wire(), "not_one_object"),
    "a way out of the whole": (wire() + b']} {"r":[' + wire(), "not_one_object"),
    "a way out, and an end": (wire() + b'],"_end":1} {"x":[', "not_one_object"),
    "a way out of nothing": (b'],"_records":[' + wire(), "not_one_object"),
    "a way out of null": (b'null],"_records":[' + wire(), "not_one_object"),
    "a way out of a number": (b'1 ] , "_records" : [' + wire(), "not_one_object"),
    "a way out and in again": (b'{}],"x":[{}],"_records":[' + wire(), "not_one_object"),
    "a bracket behind": (wire() + b"]", "not_one_object"),
    "a brace behind": (wire() + b"}", "not_one_object"),
    "a comment before": (b"/* x */" + wire(), "not_json"),
    "a comment within": (b'{"id":1,/* x */"at":%d}' % MS, "not_json"),
    "a comment to the line's end": (b'{"id":1, // x\n"at":%d}' % MS, "not_json"),
    "a comma too many": (wire()[:-1] + b",}", "not_json"),
    "a comma too many in an array": (wire(more=[1])[:-2] + b",]}", "not_json"),
    "no comma": (b'{"id":1 "at":%d}' % MS, "not_json"),
    "a name without quotes": (b'{id:1,"at":%d}' % MS, "not_json"),
    "a byte order mark": (b"\xef\xbb\xbf" + wire(), "not_json"),
    "a NUL before": (b"\0" + wire(), "not_json"),
    "a NUL behind": (wire() + b"\0", "not_one_object"),
    "a NUL in a text": (b'{"id":1,"at":%d,"note":"a\0b"}' % MS, "not_json"),
    "a line break in a text": (b'{"id":1,"at":%d,"note":"a\nb"}' % MS, "not_json"),
    "an escape that is none": (b'{"id":1,"at":%d,"note":"\\q"}' % MS, "not_json"),
    "UTF-16": (wire().decode().encode("utf-16"), "not_utf8"),
    "a surrogate in UTF-8": (b'{"id":1,"at":%d,"note":"\xed\xa0\x80"}' % MS, "not_utf8"),
    "half a letter": (b'{"id":1,"at":%d,"note":"\\ud83d"}' % MS, "not_utf8"),
    "the other half": (b'{"id":1,"at":%d,"note":"x\\uDE95x"}' % MS, "not_utf8"),
    "two first halves": (b'{"id":1,"at":%d,"note":"\\ud83d\\ud83d\\ude95"}' % MS, "not_utf8"),
    "half a letter behind a backslash": (b'{"id":1,"at":%d,"note":"\\\\\\ud83d"}' % MS, "not_utf8"),
    "a leading zero": (b'{"id":01,"at":%d}' % MS, "not_json"),
    "a plus": (b'{"id":+1,"at":%d}' % MS, "not_json"),
    "hexadecimal": (b'{"id":0x1,"at":%d}' % MS, "not_json"),
    "a point without a digit": (b'{"id":1,"fare":1.,"at":%d}' % MS, "not_json"),
    "a digit less": (b'{"id":1,"fare":.5,"at":%d}' % MS, "not_json"),
    "minus Infinity": (b'{"id":1,"at":%d,"fare":-Infinity}' % MS, "not_json"),
    "too large for a DOUBLE": (b'{"id":1,"at":%d,"fare":1e400}' % MS, "not_finite:fare"),
    "too small for a DOUBLE": (b'{"id":1,"at":%d,"fare":-1e400}' % MS, "not_finite:fare"),
    "400 digits": (b'{"id":1,"at":%d,"fare":%s}' % (MS, b"1" * 400), "not_finite:fare"),
    "a name twice, and first of another type": (b'{"id":"x","id":1,"at":%d}' % MS, "not_json"),
    "a second name, and no time": (b'{"id":1,"at":%d,"at":null}' % MS, "no_time"),
    "single quotes": (b"{'id':1,'at':%d}" % MS, "not_json"),
    "an array": (b"[" + wire() + b"]", "not_one_object"),
    "an array of numbers": (b"[1]", "not_one_object"),
    "a number": (b"5", "not_one_object"),
    "a text": (b'"x"', "not_one_object"),
    "null as JSON": (b"null", "not_one_object"),
    "text for a double": (wire(fare="twelve"), "wrong_type"),
    "a number as text": (wire(id="7"), "wrong_type"),
    "a fraction for an integer": (wire(zone=7.5), "wrong_type"),
    "too large for INT": (wire(zone=99999999999), "wrong_type"),
    "too large for BIGINT": (wire(id=10**20), "wrong_type"),
    "too large for DECIMAL": (wire(cost=123456789012.5), "wrong_type"),
    "NaN": (b'{"id":1,"at":%d,"fare":NaN}' % MS, "not_json"),
    "Infinity": (b'{"id":1,"at":%d,"fare":Infinity}' % MS, "not_json"),
    "NaN as text": (wire(fare="NaN"), "wrong_type"),
    "a number for a boolean": (wire(paid=1), "wrong_type"),
    "an object for a number": (wire(zone={"a": 1}), "wrong_type"),
    "an object for a time": (wire(at={"a": 1}), "wrong_type"),
    "an array for a time": (wire(at=[MS]), "wrong_type"),
    "a boolean for a time": (wire(at=True), "wrong_type"),
    "no time": (without("at"), "no_time"),
    "a null time": (wire(at=None), "no_time"),
    "another case": (without("at")[:-1] + b',"At":%d}' % MS, "no_time"),
    "words for a time": (wire(at="yesterday"), "wrong_type"),
    "an empty time": (wire(at=""), "wrong_type"),
    "a date only": (wire(at="2026-11-18"), "wrong_type"),
    "a 13th month": (wire(at="2026-13-01T00:00:00Z"), "wrong_type"),
    "seconds": (wire(at=MS // 1000), "time_unit"),
    "microseconds": (wire(at=MS * 1000), "time_unit"),
    "nanoseconds": (wire(at=MS * 1_000_000), "time_unit"),
    "the largest BIGINT": (wire(at=2**63 - 1), "time_unit"),
    "the least BIGINT": (wire(at=-(2**63)), "time_unit"),
    "larger than a BIGINT": (wire(at=2**63), "wrong_type"),
    "zero": (wire(at=0), "time_unit"),
    "negative": (wire(at=-MS // 1000), "time_unit"),
    "before 1900": (wire(at=-2_208_988_800_001), "time_unit"),
    "the least time of .NET": (wire(at=-62_135_596_800_000), "time_unit"),
    "seconds in another time": (wire(seen=MS // 1000), "time_unit"),
    "a year before Christ": (wire(at="-9999-01-01T00:00:00Z"), "wrong_type"),
    "year 1": (wire(at="0001-01-01T00:00:00Z"), "wrong_type"),
    "a year of five digits": (wire(seen="+12345-01-01T00:00:00Z"), "wrong_type"),
    "the year 10000 in UTC": (wire(seen="9999-12-31T23:59:59-18:00"), "wrong_type"),
    "the same by the name of a zone": (wire(seen="9999-12-31 23:59:59 America/Los_Angeles"), "wrong_type"),
    "words in another time": (wire(seen="soon"), "wrong_type"),
    "2036": (wire(at=MS + 10 * 365 * 86_400_000), "future"),
    "2036 as text": (wire(at="2036-11-18T10:00:00Z"), "future"),
    "just past the skew": (wire(at=MS + 300_001), "future"),
    "no id": (without("id"), "no_id"),
    "a null id": (wire(id=None), "no_id"),
    "another case of the id": (without("id")[:-1] + b',"ID":1}', "no_id"),
    "an array as deep as the sea": (b'{"id":1,"at":%d,"x":' % MS + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_json"),
    "objects as deep as the sea": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not_json"),
}
TAKEN: dict[str, tuple[bytes, dict[str, Any]]] = {
    "milliseconds": (wire(), {}),
    "blanks around": (b"  " + wire() + b"\n", {}),
    "just within the skew": (wire(at=MS + 300_000), {"at": "2026-11-18 10:05:00"}),
    "ISO, Z": (wire(at="2026-11-18T09:59:00Z"), {"at": "2026-11-18 09:59:00"}),
    "ISO, no zone": (wire(at="2026-11-18 09:59:00.123"), {"at": "2026-11-18 09:59:00.123"}),
    "the last second of all": (wire(seen="9999-12-31T23:59:59Z"), {"seen": "9999-12-31 23:59:59"}),
    "the last day, east": (wire(seen="9999-12-31T23:00:00+14:00"), {"seen": "9999-12-31 09:00:00"}),
    "ISO, an hour east": (wire(at="2026-11-18T10:59:00+01:00"), {"at": "2026-11-18 09:59:00"}),
    "1900": (wire(at=-2_208_988_800_000), {"at": "1900-01-01 00:00:00"}),
    "milliseconds as text": (wire(at=str(MS)), {"at": "2026-11-18 10:00:00"}),
    "more columns than declared": (wire(more={"x": [1, {"y": "}],"}]}), {}),
    "brackets in a text": (wire(note='}],"_records":[{'), {"note": '}],"_records":[{'}),
    "objects in arrays": (wire(more=[{"x": [{"y": 1}]}]), {}),
    "braces in a text": (wire(note="}{"), {"note": "}{"}),
    "an object in a text column": (b'{"id":1,"at":%d,"note":{"a":1}}' % MS, {"note": '{"a":1}', "fare": None}),
    "a column missing": (without("fare", "zone"), {"fare": None, "zone": None}),
    "a null column": (wire(fare=None), {"fare": None}),
    "an integer for a double": (wire(fare=10), {"fare": 10.0}),
    "letters of the world": (wire(note="Zürich 東京 🚕"), {"note": "Zürich 東京 🚕"}),
    "escaped letters": (b'{"id":1,"at":%d,"note":"\\u00fc\\ud83d\\ude95"}' % MS, {"note": "ü🚕"}),
    "a name twice: the last counts": (b'{"id":8,"fare":1e400,"id":1,"fare":2.5,"at":%d}' % MS, {"fare": 2.5}),
    "a name in another case is another": (wire(ID=9, Fare=1), {"fare": 10.5}),
    "the wrapper's own name": (wire(_records=[{"id": 2}], _corrupt="x"), {"fare": 10.5}),
    "an escaped NUL": (wire(note="a\0b"), {"note": "a\0b"}),
    "escaped backslashes before a u": (wire(note="\\ud83d"), {"note": "\\ud83d"}),
    "a way out in a text": (wire(note='null],"_records":['), {"note": 'null],"_records":['}),
    "arrays and brackets": (wire(more=[[1], [2, []]], note="]}"), {"note": "]}"}),
    "900 brackets": (wire()[:-1] + b',"x":' + b"[" * 900 + b"]" * 900 + b"}", {}),
    "minus zero": (b'{"id":1,"at":%d,"fare":-0.0,"zone":-0}' % MS, {"fare": 0.0, "zone": 0}),
    "less than any DOUBLE": (b'{"id":1,"at":%d,"fare":1e-400}' % MS, {"fare": 0.0}),
    "a DECIMAL is rounded": (b'{"id":1,"at":%d,"cost":1.005}' % MS, {"cost": Decimal("1.01")}),
    "a DECIMAL as text": (wire(cost="1.5"), {"cost": Decimal("1.50")}),
    "a long time ago": (wire(at="1999-12-31T23:59:59Z"), {"at": "1999-12-31 23:59:59"}),
}  # fmt: skip
CASES = {name: case[0] for name, case in [*REFUSED.items(), *TAKEN.items()]}
assert len(CASES) == len(REFUSED) + len(TAKEN)
SHAPE = "partition int, offset long, timestamp timestamp, value binary"


def readable(rows: DataFrame) -> DataFrame:
    times = {name: F.col(name).cast("string") for name in ("at", "seen")}
    return rows.withColumns(times).drop("_raw", "_broker_time").orderBy("_offset")


@pytest.fixture(scope="module")
def raw(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(3, at, TAKEN_AT, record) for at, record in enumerate(CASES.values())], SHAPE)


@pytest.fixture(scope="module")
def decoded(raw: DataFrame) -> dict[str, Row]:
    rows = readable(decode(raw, RIDES)).collect()
    assert [row["_offset"] for row in rows] == list(range(len(CASES))), "each record gives one row"
    return dict(zip(CASES, rows, strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_is_refused_with_its_reason(decoded: dict[str, Row], name: str) -> None:
    assert decoded[name]["_reason"] == REFUSED[name][1]


@pytest.mark.parametrize("name", TAKEN)
def test_a_record_is_taken_as_it_is_meant(decoded: dict[str, Row], name: str) -> None:
    row = decoded[name]
    assert row["_reason"] is None
    assert row["at"] is not None and row["id"] == 1
    for column, value in TAKEN[name][1].items():
        assert row[column] == value


def test_a_stream_gives_the_same(spark: SparkSession, raw: DataFrame, decoded: dict[str, Row], tmp_path: Path) -> None:
    table = str(tmp_path / "raw")
    raw.write.format("delta").save(table)
    found: list[Row] = []
    stream = decode(spark.readStream.format("delta").load(table), RIDES)
    writer = stream.writeStream.foreachBatch(lambda rows, _: found.extend(readable(rows).collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert found == list(decoded.values())


def test_columns_that_must_be_there(spark: SparkSession) -> None:
    strict = topic("t", schema="id BIGINT, zone INT NOT NULL, at TIMESTAMP", event_time="at", lateness="1 minute")
    records = [wire(), without("zone"), wire(zone=None), without("id")]
    raw = spark.createDataFrame([(0, at, TAKEN_AT, record) for at, record in enumerate(records)], SHAPE)
    rows = decode(raw, strict).orderBy("_offset").collect()
    assert [row["_reason"] for row in rows] == [None, "missing:zone", "missing:zone", None]


def test_a_column_may_have_any_name_that_is_not_reserved(spark: SparkSession) -> None:
    odd = topic("t", schema="r BIGINT, slot INT, offset INT, at TIMESTAMP", event_time="at", lateness="1 minute")
    record = json.dumps({"r": 7, "slot": 8, "offset": 9, "at": MS}).encode()
    row = decode(spark.createDataFrame([(0, 4, TAKEN_AT, record)], SHAPE), odd).first()
    assert row is not None
    assert (row["_reason"], row["r"], row["slot"], row["offset"], row["_offset"]) == (None, 7, 8, 9, 4)


def test_the_same_record_means_the_same_whenever_it_is_read(spark: SparkSession) -> None:
    """The broker's time stands for the clock: a replay years later refuses the same records."""
    long_ago = datetime(2019, 1, 1, tzinfo=UTC)
    raw = spark.createDataFrame([(0, 0, long_ago, wire()), (0, 1, TAKEN_AT, wire())], SHAPE)
    rows = decode(raw, RIDES).orderBy("_offset").collect()
    assert [row["_reason"] for row in rows] == ["future", None]


MANY = topic(
    "many",
    schema="""
        at TIMESTAMP, f FLOAT, t TINYINT, s SMALLINT, d DATE, c DECIMAL(10,2), wide DECIMAL(38,18), note STRING,
        fs ARRAY<DOUBLE>, ts ARRAY<TINYINT>, cs ARRAY<DECIMAL(10,2)>, times ARRAY<TIMESTAMP>, days MAP<STRING, DATE>,
        deep MAP<STRING, ARRAY<STRUCT<x: FLOAT, y: INT>>>, one STRUCT<a: DOUBLE, t: TINYINT, at: TIMESTAMP>
    """,
    event_time="at",
    lateness="1 minute",
)
VALUES: dict[str, tuple[str, str | None, Any]] = {
    "FLOAT": ('"f":1.5', None, 1.5),
    "FLOAT, too large": ('"f":1e39', "not_finite:f", None),
    "FLOAT, NaN as text": ('"f":"NaN"', "wrong_type", None),
    "FLOAT, INF as text": ('"f":"+INF"', "wrong_type", None),
    "TINYINT": ('"t":-128', None, -128),
    "TINYINT, as a byte without sign": ('"t":200', "wrong_type", None),
    "TINYINT, far too large": ('"t":70000', "wrong_type", None),
    "TINYINT, a fraction": ('"t":1.0', "wrong_type", None),
    "SMALLINT": ('"s":32767', None, 32767),
    "SMALLINT, too large": ('"s":32768', "wrong_type", None),
    "DATE": ('"d":"2026-11-18"', None, date(2026, 11, 18)),
    "DATE, 1900": ('"d":"1900-01-01"', None, date(1900, 1, 1)),
    "DATE, before": ('"d":"1899-12-31"', "wrong_type", None),
    "DATE, days since 1970": ('"d":"17"', "wrong_type", None),
    "DATE, a year": ('"d":"2026"', "wrong_type", None),
    "DATE, no dashes": ('"d":"20261118"', "wrong_type", None),
    "DATE, five digits": ('"d":"10000-01-01"', "wrong_type", None),
    "DATE, the 30th of February": ('"d":"2026-02-30"', "wrong_type", None),
    "DATE, a time": ('"d":"2026-11-18T23:00:00-05:00"', "wrong_type", None),
    "DATE, a number": ('"d":20000', "wrong_type", None),
    "DECIMAL, an exponent": ('"c":12e3', None, Decimal("12000.00")),
    "DECIMAL, rounded too large": ('"c":99999999.995', "wrong_type", None),
    "DECIMAL, as text with an exponent": ('"c":"1e5"', None, Decimal("100000.00")),
    "DECIMAL, a comma": ('"c":"1,5"', "wrong_type", None),
    "DECIMAL, a comma before": ('"c":",5"', "wrong_type", None),
    "DECIMAL, NaN": ('"c":"NaN"', "wrong_type", None),
    "DECIMAL, minutes of work": ('"c":1e999999999', "wrong_type", None),
    "DECIMAL, minutes of work for nothing": ('"c":1e-999999999', "wrong_type", None),
    "DECIMAL, minutes of work as text": ('"c":"1e999999999"', "wrong_type", None),
    "DECIMAL, the same behind a wrong type": ('"t":"x","c":"1e999999999"', "wrong_type", None),
    "DECIMAL, the same before another": ('"c":"1e999999999","c":1', "not_json", None),
    "DECIMAL, the same in an array": ('"cs":[1,"1e999999999"]', "wrong_type", None),
    "DECIMAL, 38 digits": ('"wide":12345678901234567890.123456789012345678', None,
                           Decimal("12345678901234567890.123456789012345678")),
    "text that looks like a large number": ('"c":1,"note":"3e10482"', None, "3e10482"),
    "text with commas": ('"c":1,"note":"1,5"', None, "1,5"),
    "an integer for text": ('"note":12345678901234567890123', None, "12345678901234567890123"),
    "ARRAY": ('"fs":[1,null,2.5]', None, [1.0, None, 2.5]),
    "ARRAY, one too large": ('"fs":[1,-1e400]', "not_finite:fs", None),
    "ARRAY, a byte without sign": ('"ts":[1,200]', "wrong_type", None),
    "ARRAY, bytes": ('"ts":[1,null]', None, [1, None]),
    "ARRAY, decimals": ('"cs":[1.5,"2"]', None, [Decimal("1.50"), Decimal("2.00")]),
    "ARRAY, a time in seconds": (f'"times":[{MS // 1000}]', "time_unit", None),
    "ARRAY, a time of day": ('"times":["17:00"]', "wrong_type", None),
    "MAP": ('"days":{"a":"2026-11-18"}', None, {"a": date(2026, 11, 18)}),
    "MAP, no day": ('"days":{"a":"17"}', "wrong_type", None),
    "MAP, a key twice": ('"days":{"a":null,"a":"2026-11-18"}', "wrong_type", None),
    "deep within": ('"deep":{"k":[{"x":1},{"x":1e39}]}', "not_finite:deep", None),
    "deep within, an overflow": ('"deep":{"k":[{"y":2147483648}]}', "wrong_type", None),
    "deep within, a key twice": ('"deep":{"k":[],"k":[]}', "wrong_type", None),
    "STRUCT": ('"one":{"a":1,"t":2}', None, Row(a=1.0, t=2, at=None)),
    "STRUCT, too large": ('"one":{"a":1e400}', "not_finite:one", None),
    "STRUCT, a byte without sign": ('"one":{"t":200}', "wrong_type", None),
    "STRUCT, a time in seconds": (f'"one":{{"at":{MS // 1000}}}', "time_unit", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def valued(spark: SparkSession) -> dict[str, Row]:
    records = [f'{{"at":{MS},{value}}}'.encode() for value, _, _ in VALUES.values()]
    raw = spark.createDataFrame([(0, at, TAKEN_AT, record) for at, record in enumerate(records)], SHAPE)
    return dict(zip(VALUES, decode(raw, MANY).drop("at").orderBy("_offset").collect(), strict=True))


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_itself_or_refused_and_never_another(valued: dict[str, Row], name: str) -> None:
    value, reason, due = VALUES[name]
    assert valued[name]["_reason"] == reason
    if reason is None:
        column = value.rpartition(',"' if value.startswith('"c":1,') else "\0")[2].strip('"').partition('"')[0]
        assert valued[name][column] == due
