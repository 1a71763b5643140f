"""When a pipeline's plans over its events are compiled, and when they are looked at as they run."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from tally.lake.session import interpreting
from tally.speed.shared.events import SMALL, Judged
from tally.speed.shared.micro_batches import MicroBatches
from tally.speed.shared.reading import FEW_ROWS, Reading

COMPILED, INTERPRETED = "compiled", "interpreted"


class Stream:
    """What of a topic's stream decides, with three members."""

    def __init__(self) -> None:
        reading = SimpleNamespace(spark=COMPILED, interpreting=INTERPRETED)
        reading.session = lambda rows: Reading.session(reading, rows)  # type: ignore[arg-type]
        self.self: Any = SimpleNamespace(reading=reading, may_compile=True, turn_to_compile=threading.Lock())
        self.members = [SimpleNamespace(compiled=False) for _ in range(3)]

    def micro_batch(self, offsets: int, *, first: bool = False) -> list[Any]:
        self.self.may_compile = not first
        found = Judged(frame=lambda: None, offsets=offsets, seen={})
        return [MicroBatches.session_for(self.self, one, found) for one in self.members]  # type: ignore[arg-type]


def test_few_events_are_never_worth_it() -> None:
    stream = Stream()
    assert [stream.micro_batch(FEW_ROWS) for _ in range(3)] == [[INTERPRETED] * 3] * 3


def test_the_first_micro_batch_waits_for_no_compiler() -> None:
    assert Stream().micro_batch(SMALL, first=True) == [INTERPRETED] * 3


def test_one_pipeline_more_in_each_micro_batch() -> None:
    stream = Stream()
    told = [stream.micro_batch(FEW_ROWS + 1).count(COMPILED) for _ in range(4)]
    assert told == [1, 2, 3, 3]
    assert stream.micro_batch(FEW_ROWS) == [INTERPRETED] * 3


def test_many_events_are_worth_it_at_once() -> None:
    stream = Stream()
    assert stream.micro_batch(SMALL + 1, first=True) == [COMPILED] * 3
    assert stream.micro_batch(FEW_ROWS + 1) == [COMPILED] * 3


def test_what_is_interpreted_is_the_same(spark: SparkSession) -> None:
    other = interpreting(spark)
    query = "SELECT id % 3 AS k, sum(id) AS s, max(string(id)) AS m FROM range(50) WHERE id > 4 GROUP BY 1 ORDER BY 1"
    assert other.sql(query).collect() == spark.sql(query).collect()
    explained = other.sql(query)._jdf.queryExecution().executedPlan().toString()
    assert "*(" not in explained and "*(" in spark.sql(query)._jdf.queryExecution().executedPlan().toString()
    assert other.conf.get("spark.sql.session.timeZone") == "UTC"
