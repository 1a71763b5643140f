"""The valid events of a topic's micro-batch, and which of them its stream takes: where they have ids, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType, TimestampType

from tally.catalog.spec import Topic
from tally.lake.inside_spark import Template
from tally.lake.session import interpreting
from tally.sources.frames import bounded_records
from tally.sources.records.decode import are_many, decode
from tally.speed.shared.clock import Seen
from tally.speed.shared.ids import Ids
from tally.speed.shared.spans import Span, numbers

PLACE = ("_partition", "_offset")
# Up to so many offsets a micro-batch is one partition: what each pipeline makes of it takes one task, and no exchange.
SMALL = 20_000
# Over 700 rows a plan is as fast when it is not compiled; where that ends was not measured.
FEW_ROWS = 2_000
# What of a record of Kafka's is decoded, as Spark's source gives it.
RECORD = (
    StructType()
    .add("value", BinaryType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The events that the stream takes, what was seen of all, and the ids among them that are to be remembered."""

    taken: Any  # the leaf of all plans over these events: of the reading's `shape`
    offsets: int
    seen: dict[int, Seen]
    brought: pa.Table | None = None

    @property
    def small(self) -> bool:
        return self.offsets <= SMALL


class Reading:
    """How a topic's events are read: planned once, and put over the records of each micro-batch."""

    def __init__(self, spark: SparkSession, topic: Topic) -> None:
        self.spark, self.topic = spark, topic
        self.records = spark.createDataFrame([], RECORD)
        self.decoding = Template.of(self.decoded(together=False), self.records)
        self.shape = spark.createDataFrame([], topic.ddl)
        self.shaped = Template.of(self.shape, self.shape)
        self.interpreting = interpreting(spark)
        self.together = False  # the last records were read by Python's workers, so they are there

    @cached_property
    def decoding_together(self) -> Template:
        """The same where Python's workers read the plain records."""
        return Template.of(self.decoded(together=True), self.records)

    def decoded(self, *, together: bool) -> DataFrame:
        """The valid ones of no records."""
        valid = decode(self.records, self.topic, together=together).where(F.col("_reason").isNull())
        return valid.select(*self.topic.columns, *PLACE, "_broker_time")

    def session(self, rows: int) -> SparkSession:
        """The session that runs a plan over so many rows."""
        return self.interpreting if rows <= FEW_ROWS else self.spark

    @contextmanager
    def valid(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[DataFrame]:
        """The valid events of ranges of offsets, decoded once for all that is made of them."""
        count, records = offsets(ranges), bounded_records(self.spark, self.topic, ranges)
        self.together = are_many(count) or (self.together and count > SMALL)
        events = (self.decoding_together if self.together else self.decoding).over(records)
        events = (events.coalesce(1) if count <= SMALL else events).persist()
        try:
            yield events
        finally:
            events.unpersist()

    def judged(
        self, events: DataFrame, ranges: Mapping[int, tuple[int, int]], ids: Ids | None, late_watermark: int
    ) -> Judged:
        """The events of a micro-batch by the watermark before it; without ids, its windows decide what is late."""
        if ids is None:
            return Judged(taken=self.shaped.leaf(events), offsets=offsets(ranges), seen=seen(events, self.topic))
        found = identified(events, self.topic)
        left_out, brought = ids.told_apart(found, late_watermark)
        times = found.group_by("_partition").aggregate([("_time", "max"), ("_arrived", "max")]).to_pylist()
        return Judged(
            taken=self.shaped.leaf(without(events, left_out)),
            offsets=offsets(ranges),
            seen={row["_partition"]: Seen(event=row["_time_max"] // 1000, record=row["_arrived_max"]) for row in times},
            brought=brought,
        )


def offsets(ranges: Mapping[int, tuple[int, int]]) -> int:
    """How many offsets lie in these ranges."""
    return sum(to - start for start, to in ranges.values())


def seen(events: DataFrame, topic: Topic) -> dict[int, Seen]:
    """The newest event time and broker time among the events of each partition that has one."""
    times = F.max(F.unix_millis(topic.event_time)), F.max(F.unix_millis("_broker_time"))
    return {row[0]: Seen(event=row[1], record=row[2]) for row in events.groupBy("_partition").agg(*times).collect()}


def identified(events: DataFrame, topic: Topic) -> pa.Table:
    """What tells events apart: their place, `_id`, `_time` (microseconds) and `_arrived` (milliseconds)."""
    assert topic.unique
    return events.select(
        *PLACE,
        F.col(topic.unique).alias("_id"),
        F.unix_micros(topic.event_time).alias("_time"),
        F.unix_millis("_broker_time").alias("_arrived"),
    ).toArrow()


def without(events: DataFrame, places: pa.Table) -> DataFrame:
    """All events but those at these places, which are data: a plan that named them would be compiled each time."""
    if not places.num_rows:
        return events
    left_out = events.sparkSession.createDataFrame(places)
    return events.join(F.broadcast(left_out), [*PLACE], "left_anti")


def remembered(found: pa.Table, span: Span) -> pa.Table:
    """Of identified events those that were not late in the micro-batch that held them, as ids are remembered."""
    partitions, offsets, times = (found[name].to_numpy() for name in (*PLACE, "_time"))
    held = numbers(span.edges(), partitions, offsets)
    kept = (held >= 0) & (times > span.late()[held] * 1000)
    return found.filter(pa.array(kept)).select(["_id", "_time"])
