"""Rows of random tables, read without a JVM: the digests, counts and distances that Spark gives, to the last bit."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuts import MINUTE, T0, TUMBLING

from tally.base.duration import from_millis
from tally.reconcile.first_pass import digests, rows, unsure
from tally.reconcile.first_pass.tables import Snapshot
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.rows.differences import Slot, by_slot
from tally.reconcile.rows.hashes import whole
from tally.reconcile.rows.texts import hashed, of_strings
from tally.speed.upkeep.fold import newest_rows

SCHEMA = pa.schema(
    [
        ("window_start", pa.timestamp("us", "UTC")), ("window_end", pa.timestamp("us", "UTC")), ("shop", pa.int32()),
        ("n", pa.int64()), ("byte", pa.int8()), ("short", pa.int16()), ("total", pa.float64()), ("rate", pa.float32()),
        ("name", pa.string()), ("price", pa.decimal128(20, 4)), ("share", pa.decimal128(5, 5)), ("open", pa.bool_()),
        ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("large", pa.decimal128(38, 0)),
    ]
)  # fmt: skip
RANGE = [(T0, T0 + 6 * MINUTE)]
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 2e-3, 2e23, 5e-324, 1e300, 1.7e308, 1e7, 9.9999999995, 0.1 + 0.2]
NAMES = ["", "=", "null", "é", "e\u0301", "\x00", "a" * 31, "b" * 32, "c" * 65, "\U0001f600" * 9, " x", "1"]
Row = dict[str, Any]


def single(value: float) -> float:
    """The nearest number of 32 bits, or Infinity."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


floats = st.sampled_from(FLOATS) | st.floats() | st.integers(-(10**9), 10**9).map(lambda cents: cents / 100)
micros = st.integers(-62_135_596_800_000_000, 253_402_214_400_000_000) | st.integers(0, 10**9).map(lambda s: s * 10**6)
MEASURES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "byte": st.integers(-128, 127),
    "short": st.integers(-(2**15), 2**15 - 1),
    "total": floats,
    "rate": floats.map(single),
    "name": st.sampled_from(NAMES) | st.text(st.characters(codec="utf-8"), max_size=70),
    "price": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda units: Decimal(units).scaleb(-4)),
    "share": st.integers(-99_999, 99_999).map(lambda units: Decimal(units).scaleb(-5)),
    "open": st.booleans(),
    "day": st.dates(),
    "at": micros.map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)),
    "large": st.integers(-(10**37), 10**37).map(Decimal),
}
measures = st.fixed_dictionaries({name: st.none() | one for name, one in MEASURES.items()})
places = st.tuples(st.integers(0, 5), st.none() | st.integers(-2, 2))


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """A batch table, and a speed table in which rows are the same, nearly the same, others, gone, older or new."""
    batch, stream = [], []
    for minute, shop in draw(st.lists(places, unique=True, max_size=12)):
        where = {"window_start": from_millis(T0 + minute * MINUTE), "shop": shop}
        where["window_end"] = where["window_start"] + timedelta(minutes=1, microseconds=draw(st.integers(0, 1)))
        row = {**where, **draw(measures)}
        kind = draw(st.sampled_from(["same", "same", "near", "other", "batch", "stream"]))
        other = dict(row)
        if kind == "near" and row["total"] is not None:
            other["total"] = math.nextafter(row["total"], draw(st.sampled_from([math.inf, -math.inf, 0.0])))
            other["rate"] = row["rate"] if row["rate"] is None else single(row["rate"] * (1 + 2.0**-23))
        if kind == "other":
            name = draw(st.sampled_from(list(MEASURES)))
            other[name] = draw(st.none() | MEASURES[name])
        if kind != "stream":
            batch.append(row)
        if kind != "batch":
            stream.append({**other, "_batch": 7})
            stream += [{**where, **draw(measures), "_batch": older} for older in draw(st.sets(st.integers(0, 6)))]
    return batch, draw(st.permutations(stream))


def write(folder: Path, side: str, some: Sequence[Row]) -> Snapshot:
    """A new table of these rows, in the way that both layers lay theirs."""
    path = str(folder / f"{side}-{len(list(folder.iterdir()))}")
    schema = SCHEMA if side == "batch" else SCHEMA.append(pa.field("_batch", pa.int64()))
    table = pa.Table.from_pylist(list(some), schema)
    days = pa.array([row["window_start"].date() for row in some], pa.date32())
    write_deltalake(path, table.append_column("_date", days), partition_by=["_date"])
    return Snapshot(path=path, version=0)


def by_spark(spark: SparkSession, batch: Snapshot, stream: Snapshot) -> dict[int, Slot]:
    left = spark.read.format("delta").load(batch.path).drop("_date")
    right = newest_rows(spark.read.format("delta").load(stream.path).drop("_date"), TUMBLING).drop("_batch")
    return by_slot(left, right.select(*left.columns), TUMBLING)


def by_first_pass(batch: Snapshot, stream: Snapshot, *, until: int | None = None) -> dict[int, Slot]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return rows.by_slot(connection, batch, stream, TUMBLING, RANGE, until=until, whole=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("tables")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(both=tables())
def test_every_slot_is_told_as_spark_tells_it(
    spark: SparkSession, folder: Path, both: tuple[list[Row], list[Row]]
) -> None:
    batch, stream = (write(folder, side, some) for side, some in zip(("batch", "stream"), both, strict=True))
    try:
        mine = by_first_pass(batch, stream)
    except Unsure as unsure:  # some far dates make a log that it does not trust: Spark reads such tables
        assert "not read to its end" in str(unsure)
        reject()
    theirs = by_spark(spark, batch, stream)
    assert mine.keys() == theirs.keys()
    for slot, one in mine.items():
        assert one == theirs[slot]


def plain(minute: int, shop: int | None, total: float = 1.5, **changed: Any) -> Row:
    start = from_millis(T0 + minute * MINUTE)
    values: Row = {name: None for name in SCHEMA.names}
    values |= {"window_start": start, "window_end": start + timedelta(minutes=1), "shop": shop, "n": 3, "total": total}
    return {**values, "day": date(2026, 1, 2), **changed}


def test_one_bit_of_one_row_among_many_is_found(folder: Path) -> None:
    some = [plain(minute, shop, total=shop / 7) for minute in range(6) for shop in range(500)]
    batch, stream = write(folder, "batch", some), [{**row, "_batch": 1} for row in some]
    assert all(one.same == 500 for one in by_first_pass(batch, write(folder, "stream", stream)).values())
    bits = struct.unpack("<q", struct.pack("<d", stream[1234]["total"]))[0] ^ 1
    stream[1234]["total"] = struct.unpack("<d", struct.pack("<q", bits))[0]
    found = by_first_pass(batch, write(folder, "stream", stream))
    assert {(slot - T0) // MINUTE: (one.same, one.close) for slot, one in found.items() if one.same < 500} == {
        2: (499, 1)
    }
    stream[1234] |= {"total": some[1234]["total"], "n": 4}
    found = by_first_pass(batch, write(folder, "stream", stream))
    assert [(one.same, one.other) for one in found.values() if one.same < 500] == [(499, 1)]


def test_rows_that_one_layer_lacks_are_no_doubles(folder: Path) -> None:
    batch = write(folder, "batch", [plain(0, shop) for shop in (1, 2, 3)])
    stream = write(folder, "stream", [{**plain(0, shop), "_batch": 1} for shop in (1, 4, 5)])
    found = by_first_pass(batch, stream)[T0]
    assert (found.rows, found.stream_rows, found.same, found.other) == (3, 3, 1, 4)


def test_only_what_was_written_up_to_the_cut_is_looked_at(folder: Path) -> None:
    batch = write(folder, "batch", [plain(0, 1)])
    stream = write(folder, "stream", [{**plain(0, 1), "_batch": 3}, {**plain(0, 1, total=9.0), "_batch": 4}])
    assert by_first_pass(batch, stream, until=3)[T0].same == 1
    assert by_first_pass(batch, stream)[T0].same == 0


def test_more_rows_than_fit_are_left_to_spark_and_parts_of_them_are_hashed_alike(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [plain(minute, shop, total=shop / 3) for minute in range(3) for shop in range(9)]
    batch, stream = (write(folder, side, [{**one, "_batch": 1} for one in some]) for side in ("batch", "stream"))
    whole = by_first_pass(batch, stream)
    monkeypatch.setattr(digests, "AT_A_TIME", 4)
    assert by_first_pass(batch, stream) == whole
    for together in (1, 9, 10, 26):
        monkeypatch.setattr(rows, "TOGETHER", together)
        assert by_first_pass(batch, stream) == whole
    monkeypatch.setattr(rows, "TOGETHER", 27)
    monkeypatch.setattr(unsure, "MOST_ROWS", 26)
    with pytest.raises(Unsure, match="27 rows"):
        by_first_pass(batch, stream)


@pytest.mark.parametrize(
    ("batch", "stream", "why"),
    [
        ([plain(0, 1), plain(0, 1)], [{**plain(0, 1), "_batch": 1}], "two rows"),
        ([plain(0, 1)], [{**plain(0, 1), "_batch": 1}, {**plain(0, 1, total=2.0), "_batch": 1}], "two rows"),
        ([plain(0, 1), plain(0, 2), plain(0, 2)], [{**plain(0, 1), "_batch": 1}], "two rows"),
        ([plain(0, 1)], [{**plain(0, shop), "_batch": 1} for shop in (1, 2, 2)], "two rows"),
        ([plain(0, 1), plain(0, None), plain(0, None)], [{**plain(0, 1), "_batch": 1}], "two rows"),
        ([plain(0, 1)], [{**plain(0, 1), "_batch": None}], "no micro-batch"),
        ([plain(0, 1, window_end=None)], [{**plain(0, 1), "_batch": 1}], "no bounds"),
    ],
)
def test_what_nobody_can_tell_is_left_to_spark(folder: Path, batch: list[Row], stream: list[Row], why: str) -> None:
    with pytest.raises(Unsure, match=why):
        by_first_pass(write(folder, "batch", batch), write(folder, "stream", stream))


def test_texts_of_any_length_hash_as_in_spark(spark: SparkSession) -> None:
    chance = np.random.default_rng(5)
    some = ["".join(map(chr, chance.integers(32, 0x3000, size))) for size in [*range(70), 200, 999] for _ in range(3)]
    frame = spark.createDataFrame([(at, text) for at, text in enumerate(some)], "at INT, text STRING")
    told = F.concat(F.lit("="), whole(F.col("text"), frame.schema["text"].dataType))
    spark_says = [row[0] for row in frame.orderBy("at").select(F.xxhash64(told, told)).collect()]
    column, seeds = pa.array(some), np.full(len(some), 42, dtype="uint64")
    found = hashed(hashed(seeds, of_strings(column)), of_strings(column))
    assert found.astype("int64").tolist() == spark_says
