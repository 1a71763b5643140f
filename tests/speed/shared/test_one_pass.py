"""What comes of records that are read in one pass is what Spark's decode and its plans make of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally import hopping, pipeline, topic, tumbling
from tally.catalog.spec import Pipeline
from tally.checks.definition import Definition
from tally.kinds import kind_of
from tally.lake.inside_spark import Template
from tally.parts import Split, Taking, in_two
from tally.sources.records.plain import LONGEST
from tally.sources.records.valid import Valid
from tally.speed.shared import one_pass as passes
from tally.speed.shared import reading as readings
from tally.speed.shared.events import seen
from tally.speed.shared.inbox import unpacked
from tally.speed.shared.one_pass import OnePass, Passed
from tally.speed.shared.reading import Reading

T0 = datetime(2026, 11, 7, 0, 7, tzinfo=UTC)
SALES = topic("sales", schema="shop INT NOT NULL, amount DOUBLE, cents BIGINT, at TIMESTAMP", event_time="at",
              lateness="1 minute")  # fmt: skip


@pipeline(reads=SALES, window=tumbling("1 minute"), key="shop")
def takings(sales: DataFrame) -> DataFrame:
    return sales.where("amount > 1").groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("amount").alias("s"))


@pipeline(reads=SALES, window=hopping("1 minute", by="20 seconds"), key="shop")
def largest(sales: DataFrame) -> DataFrame:
    return sales.groupBy("window", "shop").agg(F.max("amount").alias("most"), F.sum("cents").alias("cents"))


def record(second: int, **values: Any) -> bytes:
    when = T0 + timedelta(seconds=second)
    told = {"shop": second % 3, "amount": second / 4, "cents": second, "at": int(when.timestamp() * 1000), **values}
    return json.dumps(told).encode()


PLAIN = [record(at) for at in range(300)]
ODD = [
    record(20, note="an \\ in it, and \u00e9"), record(21, at=(T0 + timedelta(seconds=21)).isoformat()), None,
    b"no JSON",
    record(22, shop=None), record(23, at=None), record(24) + b" ", record(100_000), record(25, amount="12.5"),
    b'{"shop":1,"shop":2,"amount":5.5,"at":1794010031000}',
]  # fmt: skip


def as_records(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    count = len(values)
    arrived = [T0 + timedelta(minutes=10, seconds=at) for at in range(count)]
    columns = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([at % 2 for at in range(count)], pa.int32()),
        "offset": pa.array([at // 2 for at in range(count)], pa.int64()),
        "timestamp": pa.array(arrived, pa.timestamp("us", "UTC")),
    }
    return spark.createDataFrame(pa.table(columns)).repartition(2, "partition")


class World:
    """A reading of the topic, of which these are the records."""

    def __init__(self, spark: SparkSession, patch: pytest.MonkeyPatch, values: list[bytes | None]) -> None:
        records = as_records(spark, values)
        patch.setattr(readings, "bounded_records", lambda *_: records)
        self.spark, self.reading, self.values = spark, Reading(spark, SALES), values

    def split(self, one: Pipeline) -> Split:
        found = in_two(Definition(self.spark, one))
        assert isinstance(found, Split)
        return found

    def taking(self, one: Pipeline) -> Taking:
        return Taking.of(kind_of(one), self.split(one), self.reading.shape)

    def passed(self, *pipelines: Pipeline) -> Passed | None:
        takings = {(one.name, "v"): self.taking(one) for one in pipelines}
        return self.reading.read_in_one_pass({0: (0, len(self.values))}, takings)

    def parts(self, passed: Passed, one: Pipeline) -> list[str]:
        made = self.taking(one).together(passed.parts[one.name, "v"])
        assert made is not None
        return sorted(map(repr, made.to_pylist()))

    def by_spark(self, one: Pipeline) -> list[str]:
        with self.reading.valid({0: (0, len(self.values))}) as valid:
            (given,) = kind_of(one).bounded([valid.select(*SALES.columns)])
            return sorted(map(repr, self.split(one).parts(given).toArrow().to_pylist()))


@pytest.mark.parametrize("values", [PLAIN, PLAIN + ODD, ODD, []], ids=["plain", "some odd", "all odd", "none"])
def test_parts_and_times_are_those_of_sparks_plans(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, values: list[bytes | None]
) -> None:
    world = World(spark, monkeypatch, values)
    passed = world.passed(takings, largest)
    assert passed is not None
    with world.reading.valid({0: (0, len(values))}) as valid:
        assert passed.seen == seen(valid, SALES)
    for one in (takings, largest):
        expected = world.by_spark(one)
        assert (world.parts(passed, one) if expected else []) == expected


def test_who_cannot_take_an_event_is_left_to_spark_and_the_others_are_not(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, monkeypatch, [*PLAIN, record(5, cents=2**62), b'{"shop":1,"amount":-0.0,"at":1794010031000}'])
    passed = world.passed(takings, largest)
    assert passed is not None and list(passed.parts) == [("takings", "v")]
    assert world.parts(passed, takings) == world.by_spark(takings)


@pytest.mark.parametrize(
    "values",
    [[*PLAIN, record(1, note="x" * LONGEST)], [record(1, note='"')] * (2 * passes.MOST_UNSURE + 2)],
    ids=["a long one", "hardly a plain one"],
)
def test_records_that_are_none_for_it_are_not_taken(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, values: list[bytes | None]
) -> None:
    world = World(spark, monkeypatch, values)
    assert world.passed(takings) is None and world.reading.rest == readings.REST
    monkeypatch.setattr(OnePass, "over", lambda *_: pytest.fail("it is tried again at once"))
    assert [world.passed(takings) for _ in range(readings.REST)] == [None] * readings.REST
    monkeypatch.undo()
    assert World(spark, monkeypatch, PLAIN).passed(takings) is not None and not world.reading.rest


def test_many_pieces_of_a_task_are_put_together(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, and not in a worker: some records at a time, and parts that are added up as they come."""
    world = World(spark, monkeypatch, PLAIN)
    records = world.reading.sending.over(as_records(spark, [*PLAIN])).toArrow()
    of = OnePass(time="at", valid=Valid.of(SALES) or pytest.fail(), takings={("largest", "v"): world.taking(largest)})
    whole = list(of.task(iter(records.to_batches())))
    monkeypatch.setattr(passes, "AT_ONCE", 500)
    monkeypatch.setattr(passes, "MOST_PARTS", 10)
    pieces = list(of.task(iter(records.to_batches(max_chunksize=7))))
    assert told(whole) == told(pieces) and list(told(whole)) == ["newest", "0"]


def told(batches: list[pa.RecordBatch]) -> dict[str, list[str]]:
    rows = pa.Table.from_batches(batches).to_pylist()
    return {row["what"]: sorted(map(repr, unpacked(row["data"]).to_pylist())) for row in rows}


def test_a_worker_that_fails_leaves_it_to_sparks_plans(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(spark, monkeypatch, PLAIN)

    def broken(self: OnePass, records: DataFrame) -> Passed | None:
        return records.mapInArrow(fails, "n INT").toArrow() and None

    monkeypatch.setattr(OnePass, "over", broken)
    assert world.passed(takings) is None and not world.reading.rest


def test_a_function_too_deep_to_be_sent_is_left_to_sparks_plans(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    @pipeline(reads=SALES, window=tumbling("1 minute"), key="shop")
    def deep(sales: DataFrame) -> DataFrame:
        one_of = reduce(or_, [F.col("cents") == 2 * at for at in range(150)]) | (F.col("amount") > 3)
        return sales.where(one_of).groupBy("window", "shop").agg(F.count("*").alias("n"))

    world = World(spark, monkeypatch, PLAIN)
    assert world.passed(deep) is None and world.passed(takings) is not None


def fails(_: Any) -> Any:
    raise RuntimeError("a worker's end")


def test_a_few_records_without_an_event_are_rows_for_sparks_plans_too(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, monkeypatch, [b"no JSON", None])
    events = world.reading.read_here({0: (0, 2)})
    assert events is not None and not events.num_rows
    found = world.reading.judged_here(events, 2, None, 0)
    (given,) = kind_of(takings).bounded([world.reading.shape])
    taking = Template.of(world.split(takings).parts(given), world.reading.shape)
    assert taking.on(found.frame()).toArrow().num_rows == 0
