"""Of events with ids just those are taken in one pass that are taken one after the other, however they are read."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally import pipeline, topic, tumbling
from tally.catalog.spec import Pipeline, Topic
from tally.checks.definition import Definition
from tally.kinds import kind_of
from tally.lake.inside_spark import Template
from tally.parts import Split, Taking, in_two
from tally.sources.records.valid import Valid
from tally.speed.shared import one_pass as passes
from tally.speed.shared import reading as readings
from tally.speed.shared import sifting
from tally.speed.shared.events import Judged
from tally.speed.shared.ids import Ids
from tally.speed.shared.one_pass import OnePass, Passed
from tally.speed.shared.reading import Reading
from tally.speed.shared.telling import Telling

T0 = int(datetime(2026, 11, 7, tzinfo=UTC).timestamp() * 1000)
MINUTE, LATENESS, PARTITIONS = 60_000, 2 * 60_000, 3
OWNER = ("takings", "v")


def sales(kind: str) -> Topic:
    schema = f"sale {kind}, shop INT, cents BIGINT, note STRING, at TIMESTAMP"
    return topic("sales", schema=schema, event_time="at", lateness="2 minutes", unique="sale")


NUMBERED, NAMED = sales("BIGINT"), sales("STRING")


def takings(sales: DataFrame) -> DataFrame:
    return sales.groupBy("window", "shop").agg(F.count("*").alias("n"), F.sum("cents").alias("cents"))


def pipeline_of(of: Topic) -> Pipeline:
    return pipeline(reads=of, window=tumbling("1 minute"), key="shop")(takings)


@dataclass(frozen=True, kw_only=True)
class Sale:
    """A record of one micro-batch, and what is true of it."""

    partition: int
    offset: int
    sale: Any
    at: int  # milliseconds
    cents: int
    odd: bool  # no plain record: the reference reads it

    @property
    def value(self) -> bytes:
        told = {"sale": self.sale, "shop": self.cents % 2, "cents": self.cents, "note": "n", "at": self.at}
        return json.dumps(told).encode() + b" " * self.odd


def story(chance: random.Random, names: Sequence[Any], batches: int = 4, many: int = 60) -> Iterator[list[Sale]]:
    """Micro-batches of sales whose copies lie anywhere: nearer and further than the lateness, late ones, odd ones."""
    offsets, cents, crossing = [0] * PARTITIONS, 0, chance.random() < 0.7
    for number in range(batches):
        found = []
        for _ in range(many):
            cents += 1
            sale = chance.choice(names) if chance.random() < 0.2 else type(names[-1])(10_000 + cents)
            partition = chance.randrange(PARTITIONS if crossing or sale not in names else 1)
            at = T0 + number * MINUTE + chance.randrange(-4 * MINUTE, 4 * MINUTE)
            odd = chance.random() < 0.1
            offset = offsets[partition] = offsets[partition] + chance.choice([1, 1, 3])
            found.append(Sale(partition=partition, offset=offset, sale=sale, at=at, cents=cents, odd=odd))
        yield sorted(found, key=lambda one: (one.partition, one.offset))


def staying(read: list[Sale], batch: list[Sale], watermark: int) -> list[Sale]:
    """The rule as it is said; `read` are the sales before, without late ones, and those of this one are added."""
    found = []
    for one in batch:
        if one.sale is None or one.at <= watermark:
            continue
        if not any(other.sale == one.sale and abs(other.at - one.at) <= LATENESS for other in read):
            found.append(one)
        read.append(one)
    return found


def totals(found: list[Sale]) -> dict[tuple[int, int], tuple[int, int]]:
    out: dict[tuple[int, int], tuple[int, int]] = {}
    for one in found:
        group = (one.at // MINUTE * MINUTE, one.cents % 2)
        n, cents = out.get(group, (0, 0))
        out[group] = n + 1, cents + one.cents
    return out


def totals_of(parts: pa.Table) -> dict[tuple[int, int], tuple[int, int]]:
    names = parts.column_names
    rows = [[row[name] for name in names] for row in parts.to_pylist()]
    return {(int(w["start"].timestamp() * 1000), shop): (n, cents) for w, shop, n, cents in rows}


def records_of(batch: list[Sale]) -> pa.Table:
    return pa.table(
        {
            "value": pa.array([one.value for one in batch], pa.binary()),
            "partition": pa.array([one.partition for one in batch], pa.int32()),
            "offset": pa.array([one.offset for one in batch], pa.int64()),
            "timestamp": pa.array([(T0 + 60 * MINUTE) * 1000] * len(batch), pa.timestamp("us", "UTC")),
        }
    )


def split_of(spark: SparkSession, of: Topic) -> Split:
    found = in_two(Definition(spark, pipeline_of(of)))
    assert isinstance(found, Split)
    return found


def taking_of(split: Split, reading: Reading) -> Taking:
    return Taking.of(kind_of(pipeline_of(reading.topic)), split, reading.shape) or pytest.fail()


@pytest.fixture(scope="module")
def taking(spark: SparkSession) -> Taking:
    return taking_of(split_of(spark, NUMBERED), Reading(spark, NUMBERED))


class Workers:
    """Passes over a micro-batch in this process, in tasks of their own; what ways they went is kept."""

    def __init__(self, of: Topic, taking: Taking) -> None:
        self.valid = Valid.of(of) or pytest.fail()
        self.of = OnePass(time="at", valid=self.valid, takings={OWNER: taking})
        self.telling = Telling(of, lambda passed: self.reference(passed.unsure))
        self.ways = list[str]()

    def reference(self, unsure: Sequence[pa.Table]) -> pa.Table:
        plain = [table.set_column(0, "value", trimmed(table["value"])) for table in unsure]
        return pa.concat_tables([self.valid.schema.empty_table(), *(self.valid.told_apart(one)[0] for one in plain)])

    def passed(self, tasks: Sequence[list[Sale]], ids: Ids, watermark: int) -> Passed:
        self.ways.clear()

        def read(of: OnePass) -> Passed | None:
            self.ways.append(type(of.sifting).__name__ if of.takings else "ids")
            rows = [row for task in tasks for row in of.task(iter(sent(task).to_batches(max_chunksize=7)))]
            return of.gathered(pa.Table.from_batches(rows, pa.schema({"what": pa.string(), "data": pa.binary()})))

        return self.telling.over(self.of, ids, watermark, read) or pytest.fail()


def sent(task: list[Sale]) -> pa.Table:
    return records_of(task).append_column("_long", pa.array([False] * len(task)))


def in_tasks(batch: list[Sale], chance: random.Random) -> list[list[Sale]]:
    """Cut anywhere, in any order."""
    cuts = sorted([0, len(batch), *(chance.randrange(len(batch) + 1) for _ in range(chance.randrange(5)))])
    tasks = [batch[start:to] for start, to in pairwise(cuts)]
    return chance.sample(tasks, len(tasks))


def trimmed(values: pa.ChunkedArray) -> pa.Array:
    return pa.array([value.strip() for value in values.to_pylist()], pa.binary())


def test_what_stays_is_what_the_rule_says(taking: Taking, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever tasks and pieces, with copies in the same task, in others, and in earlier micro-batches."""
    monkeypatch.setattr(passes, "AT_ONCE", 2_000)
    ways, unlike = set[tuple[str, ...]](), 0
    for seed in range(24):
        chance = random.Random(seed)
        monkeypatch.setattr(sifting, "MOST_DOUBTFUL", chance.choice([3, 50_000, 50_000]))
        named = bool(seed % 2)
        names: list[Any] = ["", "a", "b", "ccc"] if named else [0, 1, 2, -(2**40)]
        workers, ids, read, watermark = Workers(NAMED if named else NUMBERED, taking), Ids(LATENESS), list[Sale](), 0
        for batch in story(chance, names):
            expected = staying(read, batch, watermark)
            passed = workers.passed(in_tasks(batch, chance), ids, watermark)
            ways.add(tuple(workers.ways))
            made = taking.together(passed.parts[OWNER])
            assert made is not None and totals_of(made) == totals(expected)
            places = {(row["_partition"], row["_offset"]) for row in passed.left_out.to_pylist()}
            stay = {(one.partition, one.offset) for one in expected}
            assert places == {(one.partition, one.offset) for one in batch} - stay
            newest = {p: max(one.at for one in batch if one.partition == p) for p in {one.partition for one in batch}}
            assert {p: one.event for p, one in passed.seen.items()} == newest
            assert passed.brought is not None
            unlike += len(stay) < len(batch)
            watermark = max(watermark, min(newest.values()) - LATENESS)
            ids.put(ids.lasting(passed.brought, watermark))
            ids.forget(watermark)
    assert ways == {("Sifting",), ("Sifting", "LeftOut"), ("ids", "LeftOut")} and unlike > 60


def test_where_a_pass_was_void_ids_are_told_first_until_one_would_not_have_been(taking: Taking) -> None:
    """A copy in another task costs a second reading of the records; none without one does."""
    workers, ids = Workers(NUMBERED, taking), Ids(LATENESS)

    def ways(*sales: int) -> list[str]:
        tasks = [[Sale(partition=at, offset=0, sale=one, at=T0, cents=at, odd=False)] for at, one in enumerate(sales)]
        workers.passed(tasks, ids, 0)
        return list(workers.ways)

    assert ways(1, 2, 3) == ["Sifting"]
    assert ways(4, 5, 4) == ["Sifting", "LeftOut"]
    assert ways(7, 7, 8) == ["ids", "LeftOut"]
    assert ways(9, 10, 11) == ["ids", "LeftOut"]
    assert ways(12, 13, 14) == ["Sifting"]


@pytest.mark.parametrize(
    "of", [pytest.param(NUMBERED, id="numbers"), pytest.param(NAMED, marks=pytest.mark.long, id="texts")]
)
def test_three_ways_to_read_give_the_same(spark: SparkSession, of: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the driver, in Spark's workers, by Spark's plans: the same events, newest times and ids to be remembered."""
    names: list[Any] = [None, 0, 1, -5] if of is NUMBERED else [None, "", "a", "b"]
    reading, ids, read, chance = Reading(spark, of), Ids(LATENESS), list[Sale](), random.Random(3)
    watermark, ways, split = 0, list[str](), split_of(spark, of)
    taking = taking_of(split, reading)
    (given,) = kind_of(pipeline_of(of)).bounded([reading.shape])
    plan = Template.of(split.parts(given), reading.shape)

    def told(found: Judged) -> dict[tuple[int, int], tuple[int, int]]:
        if found.parts:
            ways.append("one pass")
            return totals_of(taking.together(found.parts[OWNER]) or pytest.fail())
        ways.append("here" if found.events is not None else "Spark")
        made = taking.over(found.events) if found.events is not None else plan.on(found.frame()).toArrow()
        return totals_of(made or pytest.fail())

    for batch in story(chance, names, batches=2):
        records = spark.createDataFrame(records_of(batch)).repartition(PARTITIONS, "partition")
        monkeypatch.setattr(readings, "bounded_records", lambda *_, records=records: records)
        brought, expected = list[pa.Table](), totals(staying(read, batch, watermark))
        seen = list[object]()
        for few, takes in ((True, {}), (False, {OWNER: taking}), (False, {})):
            monkeypatch.setattr(readings, "are_few", lambda _, few=few: few)
            with reading.judged({0: (0, len(batch))}, ids, watermark, takes) as found:
                assert told(found) == expected
            brought.append(found.brought or pytest.fail())
            seen.append(found.seen)
        assert brought[0] == brought[1] == brought[2].cast(brought[0].schema) and seen[0] == seen[1] == seen[2]
        watermark = max(one.at for one in batch) - 3 * LATENESS
        ids.put(brought[1])
    assert ways == ["here", "one pass", "Spark"] * 2
