"""Parts that are added up in this process are what Spark makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from parts.declared import of, split_of
from parts.test_split import ALL, PIECES, SLOW, T0, drawn, frame_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructType,
)

from tally.kinds import kind_of
from tally.parts.buffers import Add, Buffer
from tally.parts.merge import compared, least, merged, ordered, summed
from tally.speed.shared.open_windows import OpenWindows


@settings(max_examples=1, derandomize=True, **SLOW)
@given(rows=drawn())
@example(rows=[])
def test_pieces_one_by_one_come_to_what_spark_adds_up(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    holds(spark, rows)


@pytest.mark.long
@settings(max_examples=30, **SLOW)
@given(rows=drawn())
def test_pieces_of_many_more_events_come_to_what_spark_adds_up(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    holds(spark, rows)


def holds(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    split, kind = split_of(spark, ALL), kind_of(ALL)
    assert split.mergeable
    schema, window = to_arrow_schema(split.schema, timezone="UTC"), OpenWindows(split.groups, "g0")
    events = frame_of(spark, rows)
    parts = [split.parts(kind.bounded([events.where(F.col("piece") == at).drop("piece")])[0]) for at in range(PIECES)]
    whole: DataFrame | None = None
    for one in parts:
        table = one.toArrow().cast(schema)
        window.put(merged(window.of(table), table, split.buffers))
        whole = one if whole is None else whole.union(one)
    assert whole is not None and window.totals is not None
    groups = len(split.groups)
    expected, found = (
        {tuple(map(repr, list(row.values())[:groups])): list(row.values())[groups:] for row in table.to_pylist()}
        for table in (split.added(whole).toArrow().cast(schema), window.totals)
    )
    assert expected.keys() == found.keys()
    sizes = [abs(row["fare"]) for row in rows if row["fare"] is not None and math.isfinite(row["fare"])]
    room = 80 * 2**-52 * max(1.0, sum(sizes)) ** 2  # floating sums of another order; squares among them
    for place, values in expected.items():
        for one, other in zip(values, found[place], strict=True):
            assert alike(one, other, room), (place, values, found[place])


def alike(one: object, other: object, room: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or abs(one - other) <= max(room, 1e-9 * abs(one))
    return repr(one) == repr(other)


NAN, STAMP = math.nan, pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (pa.float64(), [None, -math.inf, -1.0, 0.0, 2.5, math.inf, NAN]),
        (pa.string(), [None, "", "B", "a", "é", "￿", "\U0001f600"]),
        (pa.binary(), [None, b"", b"\x01", b"\x01\x00", b"\x7f", b"\xff"]),
        (pa.bool_(), [None, False, True]),
        (pa.decimal128(38, 2), [None, Decimal("-9.99"), Decimal("0.00"), Decimal("1e30")]),
        (STAMP, [None, T0, T0.replace(year=2099)]),
        (
            pa.struct([("a", pa.float64()), ("b", pa.string())]),
            [None, {"a": None, "b": "z"}, {"a": 1.0, "b": None}, {"a": 1.0, "b": "x"}, {"a": NAN, "b": "a"}],
        ),
    ],
    ids=str,
)
def test_values_are_ordered_as_spark_orders_them(spark: SparkSession, kind: pa.DataType, ascending: list[Any]) -> None:
    count = len(ascending)
    one = pa.array([value for value in ascending for _ in ascending], kind)
    other = pa.array(ascending * count, kind)
    less, equal = compared(one, other)
    places = [(at, to) for at in range(count) for to in range(count)]
    assert less.tolist() == [at < to for at, to in places]
    assert equal.tolist() == [at == to for at, to in places]
    frame = spark.createDataFrame(pa.table({"at": pa.array(range(count)), "value": pa.array(ascending, kind)}))
    assert [row["at"] for row in frame.orderBy("value").collect()] == list(range(count))


def test_zeros_of_both_signs_are_equal() -> None:
    less, equal = compared(pa.array([0.0, -0.0]), pa.array([-0.0, 0.0]))
    assert not less.any() and equal.all()


@pytest.mark.parametrize(
    ("one", "other", "most", "first"),
    [(1, 2, False, True), (2, 1, False, False), (1, 1, False, True), (1, 2, True, False), (2, 1, True, True),
     (None, 1, False, False), (1, None, True, True), (None, None, True, False)],
)  # fmt: skip
def test_which_of_two_is_kept(one: int | None, other: int | None, most: bool, first: bool) -> None:
    kept = least(pa.array([one], pa.int64()), pa.array([other], pa.int64()), most=most)
    assert kept.tolist() == [first]


@pytest.mark.parametrize(
    ("one", "other", "kind", "both"),
    [
        (None, 2, pa.int64(), 2),
        (None, None, pa.float64(), None),
        (Decimal("9" * 36 + ".98"), Decimal("0.01"), pa.decimal128(38, 2), Decimal("9" * 36 + ".99")),
    ],
)
def test_sums(one: Any, other: Any, kind: pa.DataType, both: Any) -> None:
    assert summed(pa.array([one], kind), pa.array([other], kind)).to_pylist() == [both]


@pytest.mark.parametrize(
    ("one", "kind"),
    [(2**63 - 1, pa.int64()), (Decimal("9" * 36 + ".99"), pa.decimal128(38, 2))],
    ids=["whole", "exact"],
)
def test_a_sum_that_outgrows_its_type_is_an_error(one: Any, kind: pa.DataType) -> None:
    with pytest.raises(ArithmeticError, match="a sum outgrows its type"):
        summed(pa.array([one], kind), pa.array([one], kind))


def test_what_goes_with_the_least_is_of_any_type() -> None:
    tags = pa.list_(pa.struct([("x", pa.int64())]))
    schema = pa.schema([("g0", pa.int64()), ("b0", pa.int64()), ("b1", tags)])
    buffers = [Buffer(name="b0", part=None, add=Add.MIN), Buffer(name="b1", part=None, add=Add.MIN_BY, by="b0")]  # type: ignore[arg-type]
    old = pa.table([[1, 2, None], [5, 3, None], [[{"x": 1}], None, None]], schema=schema)
    new = pa.table([[1, 2, 3], [4, 3, 9], [[], [{"x": 8}], [{"x": 9}]]], schema=schema)
    assert merged(old, new, buffers).to_pylist() == [
        {"g0": 1, "b0": 4, "b1": []},
        {"g0": 2, "b0": 3, "b1": None},
        {"g0": 3, "b0": 9, "b1": [{"x": 9}]},
    ]


@pytest.mark.parametrize(
    ("kind", "can"),
    [
        (LongType(), True), (DoubleType(), True), (DecimalType(38, 18), True), (StringType(), True),
        (StringType("UNICODE_CI"), False), (ArrayType(LongType()), False), (DayTimeIntervalType(), False),
        (StructType().add("a", LongType()), True), (StructType().add("a", StringType("UTF8_LCASE")), False),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_are_ordered_here(kind: DataType, can: bool) -> None:
    assert ordered(kind) is can


def test_what_is_ordered_by_a_list_is_added_up_by_spark(spark: SparkSession) -> None:
    def by(measure: str) -> Callable[[DataFrame], DataFrame]:
        return lambda rows: rows.groupBy("window", "zone").agg(F.expr(measure).alias("m"))

    assert split_of(spark, of(by("max(cents)"))).mergeable
    assert not split_of(spark, of(by("max(array(cents, id))"))).mergeable
