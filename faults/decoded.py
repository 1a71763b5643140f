"""Millions of records, most of them a little wrong: what is decoded quickly beside the reference decode, bit for bit.

`python -m faults.decoded --records 10000000` for some hours; a seed gives the same records again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tally.catalog.declare import topic
from tally.catalog.spec import Topic
from tally.sources.records.decode import decode, reference
from tally.sources.records.plain import Reader
from tally.sources.records.valid import Valid

TAKEN_AT = datetime(2026, 11, 18, 10, 0, tzinfo=UTC)
MS = int(TAKEN_AT.timestamp() * 1000)
CHUNK = 100_000
TOPICS = {
    "flat": """
        id BIGINT, zone INT, tiny TINYINT, small SMALLINT, fare DOUBLE, tip DOUBLE, note STRING, kind STRING,
        paid BOOLEAN, at TIMESTAMP, seen TIMESTAMP, day DATE
    """,
    "decimals": """
        id BIGINT, cost DECIMAL(10,2), whole DECIMAL(9,0), tall DECIMAL(38,18), fine DECIMAL(15,6), note STRING,
        at TIMESTAMP
    """,
    "strict": "id BIGINT NOT NULL, zone INT NOT NULL, kind STRING, at TIMESTAMP, fare DOUBLE",
    "sales": "shop INT, city INT, amount DOUBLE, pieces INT, id STRING, at TIMESTAMP",
}
WRITTEN = """
    0 -0 -0.0 0.0 -0.5 -0.000 -0e5 -0.00e3 00 01 -01 +1 1. .5 1.0 7.50 1e5 1E+05 1e-5 1e0 1.5e99 1e100 1e308 1.8e308
    1e400 -1e400 1e-320 5e-324 2.2250738585072011e-308 4.9e-324 1e-400 1e23 9007199254740993 9007199254740992.0
    123456789012345678 999999999999999999 1000000000000000000 9223372036854775807 9223372036854775808
    -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616 99999999999999999999
    2147483647 2147483648 -2147483648 -2147483649 1999999999 2000000000 32767 32768 -32768 -32769 29999 30000 127 128
    -128 -129 119 120 255 256 0.1 0.30000000000000004 1.7976931348623157e308 8.41 0.000001 0.00001 1234567890.12345678
    12345678901234.5 123456789012345.6 1.005 2.675 99999999.99 99999999.995 100000000 12345678.9 0.0000000001
    1.000000000000000000001 1e9999 1e-9999 1e99999999 NaN Infinity -Infinity null Null true True false tru nul
    "" "x" "null" "true" "NaN" "1" "1.5" "-1.50" "1,5" "1e5" "1e12345" "0x1" ":" ":)" "a:b" "\\"" "\\\\" "\\n" "\\u00e9"
    "\\ud83d\\ude95" "\\ud83d" "\\q" "é" "東京" "🚕" "\u2028" "\u2029" "\ufeff" "\u0085" "\u007f" "a\tb" "a\x00b"
    "}],\\"_records\\":[{" "}]" "]}" "}" "{" "," "id" "at" "_corrupt" [] [1] [1.5,null] [1e400] {} {"a":1} {"a":"x"}
    {"k":1,"k":2} {"id":5} 'x' // # /**/ 99999999999 100000000000 99999999999999 100000000000000 999999999999
    -2208988800000 -2208988800001 -100000000000 1763460000 1763460000000000 1763460300000 1763460300001
    "1763460000000" "2026-11-18T09:59:00Z" "2026-11-18 09:59:00" "2026-11-18T09:59:00.123456+00:00"
    "2026-11-18T09:59:00.1234567Z" "2026-11-18T09:59:00+01:00" "2026-11-18T09:59" "2026-11-18T24:00:00Z"
    "2026-11-18T09:60:00Z" "2026-11-18T09:59:60Z" "2026-02-29T00:00:00Z" "2024-02-29T00:00:00Z" "2026-04-31T00:00:00Z"
    "2026-13-01T00:00:00Z" "1900-01-01T00:00:00Z" "1899-12-31T00:00:00Z" "8999-12-31T23:59:59Z" "9999-12-31T23:59:59Z"
    "2026-11-18" "2026-11-31" "2024-02-29" "1900-02-29" "1582-10-10" "2026-1-1" " 2026-11-18" "2026-11-18T09:59:00z"
    "2026-11-18T09:59:00.Z" "2026-11-18T09:59:00.5Z" "2026-11-18t09:59:00Z" "2026-11-18T9:59:00Z" "2026-11-18 09:59 Z"
"""
EDGES = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', WRITTEN)
BYTES = [
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5", b"\xc0\x80", b"\xef\xbb\xbf", b"\x00", b"\n", b"\t", b" ", b"\r",
    b"\xe2\x80\xa8", b"\\", b'"', b",", b":", b"{", b"}", b"[", b"]", b"0", b"-", b".", b"e", b"1e5", b"null", b"],",
    b"}]", b'"id":', b'"id":7,', b'"ID":7,', b'"at":1,', b'"x":1,', b',"fare":null', b"\x7f", b"\\u0041",
]  # fmt: skip


def declared(name: str) -> Topic:
    return topic(name, schema=TOPICS[name], event_time="at", lateness="10 minutes", unique="id")


class Records:
    """Records of a topic without end: plain ones, and such as are nearly plain."""

    def __init__(self, of: Topic, seed: int) -> None:
        self.topic, self.chance = of, random.Random(f"{of.name}/{seed}")

    def some(self, count: int) -> list[bytes | None]:
        return [self.one() for _ in range(count)]

    def one(self) -> bytes | None:
        chance = self.chance
        harm = chance.random()
        if harm < 0.002:
            return chance.choice((None, b"", b" ", b"{}", b"[]", b"null", b"1", b'"x"', b"{" * 2_000, b'{"a":' * 1_200))
        comma, colon = chance.choice(((",", ":"), (", ", ": "), (",", ": ")))
        members = self.members(wrong=0.0 if harm < 0.3 else 0.06)
        text = "{" + comma.join(f'"{name}"{colon}{value}' for name, value in members) + "}"
        raw = text.encode("utf-8", "surrogatepass")
        if harm > 0.8:
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                raw = self.broken(raw)
        return raw

    def members(self, *, wrong: float) -> list[tuple[str, str]]:
        chance = self.chance
        found = [(field.name, self.value(field.type, wrong)) for field in self.topic.schema]
        if wrong and chance.random() < 0.3:
            for _ in range(chance.choice((1, 1, 2))):
                self.rearrange(found)
        return found

    def rearrange(self, found: list[tuple[str, str]]) -> None:
        chance, at = self.chance, self.chance.randrange(len(found))
        kind = chance.randrange(6)
        if kind == 0 and len(found) > 1:
            del found[at]
        elif kind == 1:
            chance.shuffle(found)
        elif kind == 2:
            name, value = found[at]
            found.insert(chance.randrange(len(found) + 1), (name, chance.choice((value, "null", chance.choice(EDGES)))))
        elif kind == 3:
            name = found[at][0]
            found[at] = (chance.choice((name.upper(), name.title(), name + "x", name[:-1], f" {name}")), found[at][1])
        else:
            extra = chance.choice(("extra", "x", "_records", "_corrupt", "é", "", "i", "idd", "a.b", "a b", "\\u0069d"))
            for _ in range(chance.choice((1, 1, 2))):
                found.insert(chance.randrange(len(found) + 1), (extra, chance.choice(EDGES)))

    def value(self, kind: str, wrong: float) -> str:
        chance = self.chance
        if chance.random() < wrong:
            return chance.choice(EDGES)
        if chance.random() < 0.05:
            return "null"
        if kind in ("BIGINT", "INT", "SMALLINT", "TINYINT"):
            most = {"BIGINT": 63, "INT": 31, "SMALLINT": 15, "TINYINT": 7}[kind]
            return str(chance.randrange(-(2**most), 2**most) if chance.random() < 0.2 else chance.randrange(100))
        if kind in ("DOUBLE", "FLOAT"):
            return self.number()
        if kind.startswith("DECIMAL"):
            whole, behind = (
                chance.randrange(10 ** chance.randrange(1, 8)),
                chance.randrange(10 ** chance.randrange(1, 7)),
            )
            number = chance.choice((f"{whole}", f"{whole}.{behind}", f"0.{behind:06d}", f"{whole / 100:.2f}"))
            return chance.choice((number, number, f"-{number}", f'"{number}"'))
        if kind == "TIMESTAMP":
            return self.time()
        if kind == "DATE":
            return f'"{datetime(1900, 1, 1) + timedelta(days=chance.randrange(300_000)):%Y-%m-%d}"'
        if kind == "STRING":
            return json.dumps("abé:漢 {}[]'"[: chance.randrange(12)], ensure_ascii=False)
        return chance.choice(("true", "false"))

    def number(self) -> str:
        chance = self.chance
        if chance.random() < 0.5:
            return repr(chance.randrange(10_000) / 100)
        whole, exponent = chance.randrange(10**15), chance.randrange(-99, 99)
        return chance.choice((
            repr(chance.random()), repr(chance.uniform(-1e6, 1e6)), str(chance.randrange(-(10**17), 10**17)),
            repr(chance.random() * 10 ** chance.randrange(-300, 300)), f"{whole}e{exponent}",
            f"{chance.uniform(-1, 1):.{chance.randrange(1, 25)}f}", f"{whole}.{chance.randrange(10**15)}",
            f"-0.{whole}e{exponent}", f"{whole % 1000}.{whole:020d}E+{abs(exponent)}",
        ))  # fmt: skip

    def time(self) -> str:
        chance, at = self.chance, MS - self.chance.randrange(-400_000, 10**9)
        if chance.random() < 0.5:
            return str(at)
        if chance.random() < 0.1:
            at = chance.randrange(-2_300_000_000_000, MS)
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
        text = when.isoformat(
            sep=chance.choice("T "), timespec=chance.choice(("seconds", "milliseconds", "microseconds"))
        )
        return f'"{chance.choice((text, text.replace("+00:00", "Z"), text[:-6]))}"'

    def broken(self, raw: bytes) -> bytes:
        """The record with bytes put in, cut out, doubled, or something behind."""
        chance, at = self.chance, self.chance.randrange(len(raw) + 1)
        end = min(len(raw), at + chance.choice((1, 1, 2, 5)))
        kind = chance.randrange(6)
        if kind == 0:
            return raw[:at] + raw[end:]
        if kind == 1:
            return raw[:end] + raw[at:]
        if kind == 2:
            return raw + chance.choice((*BYTES, raw, b" {}", b"\n" + raw))
        if kind == 3:
            return raw[:at]
        return raw[:at] + chance.choice(BYTES) + raw[at if kind == 4 else end :]


def disagreements(spark: SparkSession, of: Topic, records: list[bytes | None]) -> tuple[list[Any], Counter[str]]:
    """The records of which the two decodes say not the same, and how many were told by which one and as what."""
    count = len(records)
    table = pa.table({
        "partition": pa.array([0] * count, pa.int32()), "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([TAKEN_AT] * count, pa.timestamp("us", "UTC")), "value": pa.array(records, pa.binary()),
    })  # fmt: skip
    raw = spark.createDataFrame(table)
    frames = decode(raw, of, together=True), reference(raw, of)
    quick, slow = (frame.toArrow().sort_by("_offset") for frame in frames)
    assert len(quick) == len(slow) == count and quick.schema == slow.schema, "each record gives one row of one kind"
    wrong = set[int]()
    for name in slow.column_names:
        mine, its = (bits(one[name]) for one in (quick, slow))
        if not mine.equals(its):
            pairs = zip(mine.to_pylist(), its.to_pylist(), strict=True)
            wrong |= {at for at, (one, other) in enumerate(pairs) if one != other}
    wrong |= set(misjudged(of, table, slow))
    sure = Reader(of.schema).read(table["value"].combine_chunks()).is_valid()
    outcomes = Counter(f"{of.name} {'quick' if s else 'reference'} {reason}"
                       for s, reason in zip(sure.to_pylist(), slow["_reason"].to_pylist(), strict=True))  # fmt: skip
    told = [(records[at], quick.slice(at, 1).to_pylist(), slow.slice(at, 1).to_pylist()) for at in sorted(wrong)[:20]]
    return told, outcomes


def misjudged(of: Topic, table: pa.Table, slow: pa.Table) -> list[int]:
    """The records that are taken for valid without Spark, and that are not, or not with these values."""
    valid = Valid.of(of)
    assert valid is not None
    events, unsure = valid.told_apart(table)
    assert sorted([*events["_offset"].to_pylist(), *unsure["offset"].to_pylist()]) == list(range(len(table)))
    its = slow.take(events["_offset"])
    same = [bits(events[name].cast(its[name].type)).to_pylist() for name in of.columns]
    told = [bits(its[name]).to_pylist() for name in of.columns]
    rows = zip(
        events["_offset"].to_pylist(),
        its["_reason"].to_pylist(),
        zip(*same, strict=True),
        zip(*told, strict=True),
        strict=True,
    )
    return [place for place, reason, mine, other in rows if reason is not None or mine != other]


def bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A DOUBLE as its bits: minus zero is another than zero."""
    if not pa.types.is_float64(values.type):
        return values
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in values.chunks], pa.int64())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.decoded", description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    from tally.lake.session import session

    spark, outcomes, done, began = session("tally-faults-decoded", memory="2g"), Counter[str](), 0, time.monotonic()
    while done < given.records:
        for name in TOPICS:
            of = declared(name)
            wrong, told = disagreements(spark, of, Records(of, given.seed + done).some(CHUNK))
            done += CHUNK
            outcomes += told
            if wrong:
                print(json.dumps({"records": done, "wrong": [list(map(repr, one)) for one in wrong]}, indent=1))
                return 1
        print(json.dumps({"records": done, "seconds": round(time.monotonic() - began)}), flush=True)
    print(json.dumps({"records": done, "wrong": 0, "outcomes": dict(sorted(outcomes.items()))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
