"""Thousands of records harmed at random: the decode takes just those that a strict reader in plain Python takes.

The oracle knows JSON by Python's own reader and the types by their definitions; it shares no code with the decode.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections import Counter
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pandas
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally import topic
from tally.sources.records.decode import decode

TAKEN_AT = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
MS = int(TAKEN_AT.timestamp() * 1000)
THINGS = topic(
    "things",
    schema="""
        id BIGINT, zone INT, tiny TINYINT, fare DOUBLE, note STRING, cost DECIMAL(10,2), paid BOOLEAN, at TIMESTAMP,
        day DATE, tags ARRAY<DOUBLE>, more STRUCT<a: INT, b: FLOAT, c: ARRAY<TINYINT>>, counts MAP<STRING, INT>
    """,
    event_time="at",
    lateness="10 minutes",
    unique="id",
)
GOOD: dict[str, Any] = {
    "id": 1, "zone": 2, "tiny": 3, "fare": 10.5, "note": "x", "cost": 1.25, "paid": True, "at": MS,
    "day": "2026-11-18", "tags": [1.5, None], "more": {"a": 1, "b": 2.5, "c": [7]}, "counts": {"k": 1, "l": None},
}  # fmt: skip
OTHER = {"id": 7, "at": MS - 5, "note": '}],"_records":[{', "extra": [{"x": [1, {"y": "]"}]}]}
VOCABULARY = [
    *'{}[],:"\\ \n', '"_records"', '"_record"', '"_end"', '"_corrupt"', "null", "true", "1e400", "-1e400", "1e39",
    '"x"', "\\\\", '\\"', "NaN", "Infinity", "-0.0", "01", "+1", "0x1", "1.", ".5", "//", "/* */", "#", "'", "200",
    "-129", "2147483648", "99999999999999999999", "1.5", '"NaN"', '"17"', '"1,5"', "1e99999999", "\\ud800", "\x00",
    "\ufeff", "],", "]}", "}]", '],"_records":[', ']} {"_records":[', '}],"_end":1} {"x":[', '"id":5', '"id":null',
    '"ID":6', '"at":1', '"fare":1e400', '"\\ud83d\\ude00"', '"counts":{"k":1,"k":2}', "null],", "é", '],"_end":1,"x":[',
    '"1e99999999"', '"cost":"1e99999999"', '"cost":1e-99999999', "[1,2]", '"1e12345"', '"at":"17"', '"day":"17"',
    '"more":{"b":1e39}', '"tags":[[1e400]]', '"tags":[1e400]', '"paid":1', '"zone":null', "},",
]  # fmt: skip
HUGE_TEXT = re.compile(rb'"[\d.]+e\d{4,}"')  # where a key stands twice, such a text may be a decimal that is not seen
PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"]|\s+', re.S)
LONGS, INTS, BYTES = (range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (64, 32, 8))


class Refused(Exception):
    """The record is no event."""


class Unsure(Exception):
    """A time as text of a form that the oracle does not know, or a column twice, and at first of another type."""


class Object(list[tuple[str, Any]]):
    """The pairs of a JSON object, in order, doubled keys and all."""


class Fraction(str):
    """A number with a fraction or an exponent, as it was written."""


def oracle(raw: bytes) -> dict[str, Any]:
    """The event in a record; Refused where it is not exactly one JSON object with the declared types."""
    try:
        found = json.loads(
            raw.decode(), object_pairs_hook=Object, parse_constant=refuse, parse_float=Fraction, parse_int=int
        )
    except ValueError:
        raise Refused from None
    if not isinstance(found, Object):
        raise Refused
    whole(found)
    row = columns(found, {**dict.fromkeys(("id",), LONGS), "zone": INTS, "tiny": BYTES, "fare": "double",
        "note": "text", "cost": "decimal", "paid": "boolean", "at": "time", "day": "date", "tags": ["double"],
        "more": {"a": INTS, "b": "float", "c": [BYTES]}, "counts": "counts"})  # fmt: skip
    if row["id"] is None or row["at"] is None:
        raise Refused
    return row


def refuse(_: str) -> None:
    raise Refused


def whole(value: Any) -> None:
    """Refuse half a surrogate pair, and an exponent that no number has room for, wherever one stands."""
    if isinstance(value, Object):
        for name, inner in value:
            whole(name)
            whole(inner)
    elif isinstance(value, Fraction):
        if re.search(r"e[+-]?\d{4}", value, re.I):
            raise Refused
    elif isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise Refused
    elif isinstance(value, list):
        for inner in value:
            whole(inner)


def columns(found: Object, kinds: dict[str, Any]) -> dict[str, Any]:
    """The declared columns; of a name that stands there twice the last counts."""
    last = dict(found)
    row = {name: None if last.get(name) is None else of_type(last[name], kind) for name, kind in kinds.items()}
    for name, value in found:
        if name in kinds and value is not None and value is not last[name]:
            try:
                of_type(value, kinds[name])
            except Refused:
                raise Unsure from None
    return row


def of_type(value: Any, kind: Any) -> Any:
    """A value in its declared type; Refused where it is of another one, or too large."""
    if isinstance(kind, dict):
        return columns(value, kind) if isinstance(value, Object) else refuse("")
    if isinstance(kind, list):
        if not isinstance(value, list) or isinstance(value, Object):
            raise Refused
        return [None if one is None else of_type(one, kind[0]) for one in value]
    if isinstance(kind, range):
        return value if type(value) is int and value in kind else refuse("")
    return {
        "double": number, "float": number, "decimal": decimal, "text": lambda given, _: given, "boolean": boolean,
        "time": time, "date": day, "counts": counts,
    }[kind](value, kind)  # fmt: skip


def number(value: Any, kind: str) -> float:
    if type(value) not in (int, Fraction):
        raise Refused
    try:
        made = float(value)
        if kind == "float":
            (made,) = struct.unpack("f", struct.pack("f", made))
    except OverflowError:
        raise Refused from None
    return made if abs(made) < float("inf") else refuse("")  # type: ignore[return-value]


def decimal(value: Any, _: str) -> Decimal:
    written = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?"
    if type(value) not in (int, Fraction, str) or not re.fullmatch(written, str(value), re.I | re.A):
        raise Refused
    made = Decimal(str(value)).quantize(Decimal("0.01"), ROUND_HALF_UP) if Decimal(value).adjusted() < 9 else None
    return made if made is not None and abs(made) < 10**8 else refuse("")  # type: ignore[return-value]


def boolean(value: Any, _: str) -> bool:
    return value if isinstance(value, bool) else refuse("")  # type: ignore[return-value]


def time(value: Any, _: str) -> int:
    """Epoch milliseconds, as a number or as text."""
    if type(value) is str:
        if re.match(r"\s*(19|[2-9]\d)\d\d-\d\d-\d\d[T ]\d\d:\d\d", value):
            raise Unsure
        value = int(value) if re.fullmatch(r"[+-]?\d+", value, re.A) else value
    if type(value) is not int or not (-2_208_988_800_000 <= value <= -(10**11) or 10**11 <= value <= MS + 300_000):
        raise Refused
    return value


def day(value: Any, _: str) -> date:
    if type(value) is not str or not re.fullmatch(r"(19|[2-9]\d)\d\d-\d\d-\d\d", value.strip(" \t\n\r\f\v"), re.A):
        raise Refused
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        raise Refused from None


def counts(value: Any, _: str) -> dict[str, int]:
    if not isinstance(value, Object) or len({name for name, _ in value}) < len(value):
        raise Refused
    return {name: None if one is None else of_type(one, INTS) for name, one in value}


def harmed(chance: random.Random) -> bytes:
    """A good record with up to three accidents in it."""
    text = json.dumps(chance.choice((GOOD, GOOD, OTHER)), ensure_ascii=chance.random() < 0.5)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        text = accident(text, chance)
    raw = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.01:
        at = chance.randrange(len(raw) + 1)
        raw = raw[:at] + chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5")) + raw[at:]
    return raw


def accident(text: str, chance: random.Random) -> str:
    """The text with pieces put in, in the place of others, cut out, doubled or turned, or another record behind."""
    pieces = PIECES.findall(text) or [""]
    start = chance.randrange(len(pieces))
    end = min(len(pieces), start + chance.choice((1, 1, 1, 2, 3, 8)))
    word = chance.choice(VOCABULARY)
    kind = chance.randrange(11)
    if kind == 0:
        at = chance.randrange(len(text) + 1)
        return text[:at] + word + text[at:]
    if kind == 1:
        return word + text + chance.choice(("", word, json.dumps(OTHER)))
    if kind == 2:
        return text + chance.choice(("", ",", "\n", "],", word)) + chance.choice((word, json.dumps(OTHER), text))
    if kind in (3, 9, 10):  # often still JSON
        at = chance.choice([found.start() for found in re.finditer(r'}|, "', text)] or [0])
        return f"{text[:at]},{word if kind == 3 else member(chance)}{text[at:]}"
    middle = {4: [word], 5: [], 6: pieces[start:end] * 2, 7: [word, *pieces[start:end]], 8: pieces[start:end][::-1]}
    return "".join([*pieces[:start], *middle[kind], *pieces[end:]])


def member(chance: random.Random) -> str:
    """A declared column, or one that nobody declared, with a value of any kind."""
    values = [word for word in VOCABULARY if re.fullmatch(r'[-\d.eE]+|"[^":]*"|null|true|\[.*\]', word)]
    return f"{chance.choice([f'{name!s}' for name in map(json.dumps, [*GOOD, 'extra'])])}:{chance.choice(values)}"


def disagreements(spark: SparkSession, count: int, seed: int) -> tuple[list[Any], Counter[str]]:
    """The records on which decode and oracle differ, and how many there were of each outcome."""
    chance = random.Random(seed)
    records = [harmed(chance) for _ in range(count)]
    frame = pandas.DataFrame({"offset": range(count), "value": records})
    raw = spark.createDataFrame(frame).select(
        F.lit(0).alias("partition"), "offset", F.lit(TAKEN_AT).alias("timestamp"), "value"
    )
    shown = {"at": F.unix_millis("at"), "cost": F.col("cost").cast("string"), "day": F.col("day").cast("string")}
    told = decode(raw, THINGS).withColumns(shown).drop("_raw", "_broker_time", "_partition", "note", "paid", "at")
    outcomes: Counter[str] = Counter()
    wrong: list[Any] = []
    for row in told.toLocalIterator(prefetchPartitions=True):
        raw_bytes, reason = records[row["_offset"]], row["_reason"]
        try:
            due = oracle(raw_bytes)
            if HUGE_TEXT.search(raw_bytes) and reason == "not_json":
                raise Unsure
        except Refused:
            outcomes[str(reason)] += 1
            if reason is None:
                wrong.append((raw_bytes, "taken, and is none"))
        except Unsure:
            outcomes["unsure"] += 1
        else:
            outcomes["taken"] += 1
            if reason is not None:
                wrong.append((raw_bytes, reason))
            elif got(row) != expected(due):
                wrong.append((raw_bytes, got(row), expected(due)))
    assert sum(outcomes.values()) == count, "each record gives one row"
    return wrong, outcomes


def got(row: Any) -> list[Any]:
    return [row["id"], row["zone"], row["tiny"], row["fare"], row["cost"], row["day"], row["tags"], row["counts"],
            row["more"] and row["more"].asDict()]  # fmt: skip


def expected(due: dict[str, Any]) -> list[Any]:
    cost, day_ = due["cost"], due["day"]
    return [due["id"], due["zone"], due["tiny"], due["fare"], None if cost is None else f"{cost + 0:.2f}",
            None if day_ is None else str(day_), due["tags"], due["counts"], due["more"]]  # fmt: skip


def test_what_is_taken_is_one_object_of_the_declared_types(spark: SparkSession) -> None:
    wrong, outcomes = disagreements(spark, 15_000, seed=11)
    assert wrong == [], outcomes
    assert outcomes["taken"] > 1_200 and outcomes["not_one_object"] > 1_000 and outcomes["not_finite:fare"] > 5
    assert outcomes["unsure"] < 600


@pytest.mark.long
def test_a_million_harmed_records(spark: SparkSession) -> None:
    for seed in range(4):
        wrong, outcomes = disagreements(spark, 300_000, seed=100 + seed)
        assert wrong == [], outcomes
