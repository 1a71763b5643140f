"""What is read without the reference is what the reference reads, and is what producers normally write."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench import decode as bench
from faults import decoded
from faults.decoded import MS, Records, declared, disagreements
from tally import topic
from tally.catalog.spec import Topic
from tally.sources.records import decode, plain
from tally.sources.records.plain import Reader
from tally.sources.records.valid import Valid

FLAT = Reader(declared("flat").schema)
MONEY = Reader(declared("decimals").schema)


def sure(record: str | bytes | None, reader: Reader = FLAT) -> bool:
    raw = record.encode("utf-8", "surrogatepass") if isinstance(record, str) else record
    (read,) = reader.read(pa.array([raw], pa.binary()))
    return bool(read.is_valid)


@pytest.mark.parametrize("name", ["flat", "decimals", "strict"])
def test_both_decodes_say_the_same_of_every_record(spark: SparkSession, name: str) -> None:
    wrong, outcomes = disagreements(spark, declared(name), Records(declared(name), seed=5).some(3_000))
    assert wrong == []
    quick = sum(count for outcome, count in outcomes.items() if " quick " in outcome)
    assert quick > 150 and len(outcomes) > 8, outcomes


def test_a_grammar_that_takes_too_much_is_seen(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison finds what it is there to find: here times in seconds."""
    monkeypatch.setitem(plain.VALUES, "TIMESTAMP", "[1-9][0-9]{6,13}")
    of = declared("strict")
    reader = Reader(of.schema)
    assert reader.grammar  # worked out here: the workers have the grammar as it is written
    monkeypatch.setattr(decoded, "decode", lambda raw, of, **_: quick(raw, of, reader))
    wrong, _ = disagreements(spark, of, Records(of, seed=5).some(3_000))
    assert {right[0]["_reason"] for _, _, right in wrong} == {"time_unit"}


def quick(raw: DataFrame, of: Topic, reader: Reader) -> DataFrame:
    read = F.arrow_udf(reader.batches, of.ddl)
    return decode.decoded(raw.withColumn(decode.PLAIN, read(F.col("value"))), of, plain=True)


PLAIN = {
    "numbers": f'{{"id":1,"zone":-2,"tiny":3,"small":0,"fare":10.50,"tip":-0.5,"at":{MS}}}',
    "an exponent": f'{{"id":1,"fare":1.5e-05,"at":{MS}}}',
    "spaces of Python": f'{{"id": 1, "fare": 10.5, "at": {MS}}}',
    "another order": f'{{"at":{MS},"id":1}}',
    "a time as text": '{"id":1,"at":"2026-11-18T09:59:00.123Z"}',
    "a time as text, and another as number": f'{{"id":1,"at":"2026-11-18 09:59:00","seen":{MS}}}',
    "a day": f'{{"id":1,"day":"2026-12-31","at":{MS}}}',
    "letters of the world": f'{{"id":1,"note":"Zürich 東京 🚕","at":{MS}}}',
    "text with what divides": f'{{"id":1,"note":"a:b, {{}}[]","kind":":","at":{MS}}}',
    "nulls": f'{{"id":1,"note":null,"fare":null,"seen":null,"at":{MS}}}',
    "a column that nobody declared": f'{{"id":1,"extra":"x","paid":true,"at":{MS}}}',
    "such columns twice": f'{{"id":1,"extra":"x","extra":1,"at":{MS}}}',
}
NOT_PLAIN = {
    "nothing": None,
    "no bytes": b"",
    "no JSON": "hello",
    "two objects": f'{{"id":1,"at":{MS}}}{{"id":1,"at":{MS}}}',
    "a blank behind": f'{{"id":1,"at":{MS}}} ',
    "an escape": f'{{"id":1,"note":"\\u00e9","at":{MS}}}',
    "bad UTF-8": b'{"id":1,"note":"\xed\xa0\x80","at":1763460000000}',
    "a byte order mark": f'\ufeff{{"id":1,"at":{MS}}}',
    "a name twice": f'{{"id":1,"id":2,"at":{MS}}}',
    "a name twice, among others": f'{{"id":1,"extra":1,"id":null,"at":{MS}}}',
    "a name in another case": f'{{"ID":1,"at":{MS}}}',
    "minus zero": f'{{"id":1,"fare":-0.0,"at":{MS}}}',
    "a leading zero": f'{{"id":01,"at":{MS}}}',
    "a number as text": f'{{"id":"1","at":{MS}}}',
    "a fraction for an integer": f'{{"id":1.0,"at":{MS}}}',
    "a large integer": f'{{"id":9223372036854775807,"at":{MS}}}',
    "a huge number": f'{{"id":1,"fare":1e400,"at":{MS}}}',
    "NaN": f'{{"id":1,"fare":NaN,"at":{MS}}}',
    "seconds": f'{{"id":1,"at":{MS // 1000}}}',
    "no such day": f'{{"id":1,"day":"2026-02-30","at":{MS}}}',
    "a zone": '{"id":1,"at":"2026-11-18T09:59:00+01:00"}',
    "an object within": f'{{"id":1,"extra":{{}},"at":{MS}}}',
    "a long one": f'{{"id":1,"note":"{"x" * 5_000}","at":{MS}}}',
}  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_what_producers_write_is_plain(name: str) -> None:
    assert sure(PLAIN[name])


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_all_else_is_left_to_the_reference(name: str) -> None:
    assert not sure(NOT_PLAIN[name])


@pytest.mark.parametrize("cost", ["1", "1.25", "-0.05", '"12.50"', "99999999.99", "null"])
def test_decimals_are_plain(cost: str) -> None:
    assert sure(f'{{"id":1,"cost":{cost},"at":{MS}}}', MONEY)


@pytest.mark.parametrize("cost", ["1.255", "123456789", "1e2", '"1,5"', '"1e99999"'])
def test_decimals_that_are_rounded_or_too_large_are_not(cost: str) -> None:
    assert not sure(f'{{"id":1,"cost":{cost},"at":{MS}}}', MONEY)


def test_one_record_says_nothing_of_its_neighbours() -> None:
    records = [one.encode("utf-8", "surrogatepass") if isinstance(one, str) else one
               for pair in zip(PLAIN.values(), NOT_PLAIN.values(), strict=False) for one in pair]  # fmt: skip
    together = FLAT.read(pa.array(records, pa.binary()))
    assert together.to_pylist() == [FLAT.read(pa.array([one], pa.binary()))[0].as_py() for one in records]
    assert together.slice(3, 5).is_valid().to_pylist() == [bool(at % 2) for at in range(5)]
    within = pa.array([b"x", *records, b"y"], pa.binary()).slice(1, len(records))
    assert FLAT.read(within) == together


def test_batches_give_a_row_a_record() -> None:
    given = [pa.array([f'{{"id":{at},"at":{MS}}}'.encode()] * at, pa.binary()) for at in (3, 0, 5)]
    rows = [row for batch in FLAT.batches(iter(given)) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [3] * 3 + [5] * 5


@pytest.mark.parametrize("name", bench.SCHEMAS)
def test_hardly_a_record_of_the_benches_is_left(name: str) -> None:
    records = bench.records(name, 1_000)
    read = Reader(bench.topic_of(name).schema).read(pa.array(records, pa.binary()))
    assert read.null_count <= 10


def test_a_topic_with_a_column_that_cannot_be_read_is_the_references() -> None:
    nested = topic("t", schema="at TIMESTAMP, tags ARRAY<INT>", event_time="at", lateness="1 minute")
    assert not Reader(nested.schema).covers and FLAT.covers and MONEY.covers


@pytest.mark.parametrize("names", [[f"{at:04}" * 6 for at in range(1_000)], ["long" * 200]], ids=["many", "a long one"])
def test_a_topic_with_too_many_letters_in_its_names_is_the_references(names: list[str]) -> None:
    """RE2 compiles no expression for them."""
    columns = ", ".join(f"c{name} DOUBLE" for name in names)
    wide = topic("wide", schema=f"at TIMESTAMP, {columns}", event_time="at", lateness="1 minute")
    assert not Reader(wide.schema).covers and Valid.of(wide) is None


def test_names_of_which_one_begins_another() -> None:
    of = topic("t", schema="a INT, ab INT, b INT, at TIMESTAMP", event_time="at", lateness="1 minute")
    names = ["a", "ab", "b", "at", "", "A", "aB", "abc", "x", "é", "AT", "att"]
    for name in names:
        record = json.dumps({name: 1, "at": MS} if name != "at" else {"at": MS}, ensure_ascii=False)
        assert sure(record, Reader(of.schema)) == (name not in ("A", "aB", "AT")), name
