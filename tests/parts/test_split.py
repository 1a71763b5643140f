"""Parts of any pieces of the events, added up and finished, are the function's rows over all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from parts.declared import EVENTS, of, rows_of, split_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tally.kinds import kind_of

T0 = datetime(2026, 11, 7, 0, 7, tzinfo=UTC)
PIECES = 3
MEASURES = """
    count(*) AS n, count(fare, name) AS both, count_if(paid) AS paid_ones, sum(cents) AS s_cents, sum(small) AS s_small,
    sum(price) AS s_price, sum(wide) AS s_wide, avg(wide) AS a_wide, avg(price) AS a_price, min(wide) AS least,
    sum(fare) AS f_fare, sum(tip) AS f_tip, avg(fare) AS f_avg, avg(cents) AS c_cents, sum(fare) / count(*) AS f_mean,
    min(fare) AS z_least, max(fare) AS z_most, max(tip) AS z_tip, min(name) AS first, max(name) AS last,
    min(day) AS day, max(at) AS newest, max(struct(paid, id)) AS best, bool_and(paid) AS every, bool_or(paid) AS some,
    stddev(tip) AS v_tip, stddev_pop(price) AS v_price, var_pop(small) AS v_small, variance(fare) AS w_fare,
    max_by(name, struct(day, name)) AS latest, min_by(price, id) AS eldest,
    sum(cents) FILTER (WHERE paid) AS s_paid, count(*) FILTER (WHERE fare > 0) AS above_zero,
    avg(CAST(price * 1000 AS DECIMAL(11,0))) AS a_few, sum(CAST(price % 1000 AS DECIMAL(8,5))) AS s_few,
    round(sum(price) / count(*), 1) AS rounded, coalesce(sum(cents), 0) + 1 AS more
"""


def measured(rows: DataFrame) -> DataFrame:
    kept = rows.where("name IS NULL OR name <> 'drop'").withColumn("half", F.floor(F.col("fare") / 2))
    names = [F.expr(one) for one in split_list(MEASURES)]
    grouped = kept.groupBy("window", "zone", "tip_of").agg(*names)
    return grouped.where("n <> 3").withColumn("f_twice", F.col("f_fare") * 2)


def split_list(text: str) -> Iterator[str]:
    """What stands between the commas that are in no brackets."""
    depth, begun = 0, 0
    for at, letter in enumerate(text):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            yield text[begun:at].strip()
            begun = at + 1
    yield text[begun:].strip()


ALL = of(lambda rows: measured(rows.withColumn("tip_of", F.col("tip").cast("double"))), "zone", "tip_of")
reals = st.sampled_from([0.0, -0.0, 1 / 3, -2.5, 1e15, -1e15, math.nan, math.inf, -math.inf, 7.25]) | st.floats(
    -1e6, 1e6
)
digits = st.decimals(-(10**12), 10**12, places=18)


@st.composite
def event(draw: st.DrawFn, number: int) -> dict[str, Any]:
    def maybe(one: st.SearchStrategy[Any]) -> Any:
        return draw(st.none() | one)

    return {
        "id": number,
        "zone": maybe(st.integers(0, 3)),
        "fare": maybe(reals),
        "tip": maybe(st.sampled_from([0.0, -0.0, 1.5, math.nan])),
        "cents": maybe(st.integers(-(2**57), 2**57)),
        "small": maybe(st.integers(-(2**15), 2**15 - 1)),
        "price": maybe(st.decimals(-99999999, 99999999, places=2)),
        "wide": maybe(digits),
        "name": maybe(st.sampled_from(["", "a", "B", "é", "drop"])),
        "paid": maybe(st.booleans()),
        "day": maybe(st.dates(date(1900, 1, 1), date(2100, 1, 1))),
        "at": T0 + timedelta(microseconds=draw(st.integers(0, 119_999_999))),
        "piece": draw(st.integers(0, PIECES - 1)),
    }


def drawn() -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.integers(0, 40).flatmap(lambda count: st.tuples(*(event(at) for at in range(count))).map(list))


def frame_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    schema = StructType.fromDDL(f"{EVENTS.ddl}, piece INT")
    return spark.createDataFrame([tuple(row.get(field.name) for field in schema.fields) for row in rows], schema)


SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck)}  # an example is seconds of Spark


@settings(max_examples=3, derandomize=True, **SLOW)
@given(rows=drawn())
@example(rows=[])
def test_any_pieces_give_the_functions_rows(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    holds(spark, rows)


@pytest.mark.long
@settings(max_examples=30, **SLOW)
@given(rows=drawn())
def test_any_pieces_of_many_more_events_give_the_functions_rows(
    spark: SparkSession, rows: list[dict[str, Any]]
) -> None:
    holds(spark, rows)


def holds(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    events = frame_of(spark, rows)
    bare = events.drop("piece")
    pieces = [events.where(F.col("piece") == at).drop("piece") for at in range(PIECES)]
    direct, combined = rows_of(spark, ALL, bare, pieces)
    assert combined.schema == direct.schema
    expected, found = direct.collect(), combined.collect()
    fares = [abs(row["fare"]) for row in rows if row["fare"] is not None and math.isfinite(row["fare"])]
    same(expected, found, sum(fares))
    oracle(found, rows)


def same(expected: list[Row], found: list[Row], size: float) -> None:
    """The same rows; floating ones up to what adding up numbers of this size in another order does."""
    one, two = ({repr((row["window"], row["zone"], row["tip_of"])): row for row in rows} for rows in (expected, found))
    assert len(one) == len(expected) and len(two) == len(found) and one.keys() == two.keys()
    room = {"f": 80 * 2**-52 * size, "c": 40 * 2**6, "v": 1e-6, "w": 80 * 2**-52 * size * size}
    for place, row in one.items():
        for name, value in row.asDict().items():
            assert alike(value, two[place][name], name, room), (place, name, value, two[place][name])


def alike(one: Any, two: Any, name: str, room: dict[str, float]) -> bool:
    kind, _, rest = name.partition("_")
    if not isinstance(one, float) or not isinstance(two, float) or not rest:
        return repr(one) == repr(two)
    if kind in room and math.isfinite(one):
        return abs(one - two) <= max(1e-9 * abs(one), room[kind])
    return one == two or (math.isnan(one) and math.isnan(two))  # z_: which zero is the least is chance, here and there


def oracle(found: list[Row], rows: list[dict[str, Any]]) -> None:
    """A few of the measures in plain Python."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        if row["name"] != "drop":
            tip = "null" if row["tip"] is None else repr(row["tip"] + 0.0)
            groups.setdefault((row["at"].minute, row["zone"], tip), []).append(row)
    expected = {place: plain(group) for place, group in groups.items() if len(group) != 3}
    told = {
        (row["window"]["start"].minute, row["zone"], "null" if row["tip_of"] is None else repr(row["tip_of"])):
        tuple(row[name] for name in ("n", "s_cents", "s_price", "s_paid", "first", "every", "latest"))
        for row in found
    }  # fmt: skip
    assert told == expected


def plain(group: list[dict[str, Any]]) -> tuple[Any, ...]:
    def values(name: str) -> list[Any]:
        return [row[name] for row in group if row[name] is not None]

    paid = [row["cents"] for row in group if row["paid"] and row["cents"] is not None]
    names = [name.encode() for name in values("name")]
    order = [
        (row["day"] or date.min, (row["name"] or "").encode(), row["name"] is not None, row["name"]) for row in group
    ]
    return (
        len(group),
        sum(values("cents")) if values("cents") else None,
        sum(values("price"), Decimal(0)) if values("price") else None,
        sum(paid) if paid else None,
        min(names).decode() if names else None,
        all(values("paid")) if values("paid") else None,
        max(order, key=lambda one: one[:3])[3],
    )


@pytest.mark.parametrize(
    ("measure", "column", "values"),
    [
        ("sum(cents)", "cents", [2**62, 2**62, 5]),
        ("sum(wide)", "wide", [Decimal(6 * 10**19), Decimal(6 * 10**19), Decimal(1)]),
    ],
)
def test_a_sum_that_outgrows_its_type_raises_as_the_batch_does(
    spark: SparkSession, measure: str, column: str, values: list[Any]
) -> None:
    declared = of(lambda rows: rows.groupBy("window", "zone").agg(F.expr(measure).alias("m")))
    rows = [{"id": at, "zone": 1, "at": T0, column: value} for at, value in enumerate(values)]
    for frame in rows_of(spark, declared, frame_of(spark, rows), [frame_of(spark, [row]) for row in rows]):
        with pytest.raises(PySparkException):
            frame.collect()


def test_a_sum_of_bigints_outgrows_its_type_on_its_way_and_comes_back(spark: SparkSession) -> None:
    """The batch raises here or not, as its partitions have it; parts know the sum."""
    declared = of(lambda rows: rows.groupBy("window", "zone").agg(F.expr("sum(cents)").alias("m")))
    rows = [{"id": at, "zone": 1, "at": T0, "cents": value} for at, value in enumerate([2**62, 2**62, -(2**62)])]
    _, together = rows_of(spark, declared, frame_of(spark, rows), [frame_of(spark, rows)])
    _, apart = rows_of(spark, declared, frame_of(spark, rows), [frame_of(spark, [row]) for row in rows])
    assert [row["m"] for frame in (together, apart) for row in frame.collect()] == [2**62, 2**62]


@pytest.mark.parametrize(
    ("scale", "values"),
    [
        (0, [69202146910] * 6 + [92025697603]),  # as DOUBLE ....8572, exactly ....8571
        (2, [84845751376] * 31 + [82339780395]),
        (11, [93061252368] * 6 + [35000878205]),
        (0, [99999999999, -99999999999, 1] * 7 + [0]),
    ],
)
def test_an_average_of_decimals_of_few_digits_is_rounded_as_spark_does(
    spark: SparkSession, scale: int, values: list[int]
) -> None:
    few = f"avg(cast(wide as decimal(11,{scale})))"
    declared = of(lambda rows: rows.groupBy("window", "zone").agg(F.expr(few).alias("m")))
    rows = [{"id": at, "zone": 1, "at": T0, "wide": Decimal(one).scaleb(-scale)} for at, one in enumerate(values)]
    pieces = [frame_of(spark, rows[at::PIECES]) for at in range(PIECES)]
    direct, combined = rows_of(spark, declared, frame_of(spark, rows), pieces)
    assert combined.schema == direct.schema and combined.collect() == direct.collect()


def test_what_the_finish_leaves_out_stands_in_parts(spark: SparkSession) -> None:
    declared = of(lambda rows: rows.groupBy("window", "zone").agg(F.count("*").alias("n")).where("n > 1"))
    split, kind = split_of(spark, declared), kind_of(declared)
    parts = split.parts(kind.bounded([frame_of(spark, [{"id": 1, "zone": 1, "at": T0}])])[0])
    assert parts.count() == 1 and split.finished(parts).count() == 0
    assert split.finished(split.added(parts.union(parts))).collect()[0]["n"] == 2


def test_parts_have_the_schema_that_was_told(spark: SparkSession) -> None:
    split = split_of(spark, ALL)
    events = kind_of(ALL).bounded([frame_of(spark, [{"id": 1, "zone": 1, "at": T0}])])[0]
    for parts in (split.parts(events), split.added(split.parts(events))):
        told = [(field.name, field.dataType) for field in split.schema.fields]
        assert [(field.name, field.dataType) for field in parts.schema.fields] == told


def test_a_plan_does_not_grow_with_the_events(spark: SparkSession) -> None:
    split = split_of(spark, ALL)
    few, many = (
        split.parts(kind_of(ALL).bounded([frame_of(spark, [{"id": at, "at": T0} for at in range(count)])])[0])
        for count in (1, 500)
    )
    words = [len(frame._jdf.queryExecution().analyzed().toString().splitlines()) for frame in (few, many)]
    assert words[0] == words[1]
