"""How a topic's records are read for all pipelines that share its stream: a few in this process, many in one pass.

What neither does is Spark's: its plan of the decode, whose rows are kept for the plans of all pipelines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pickle import PicklingError
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType, TimestampType

from tally.catalog.spec import Topic
from tally.lake.inside_spark import Template
from tally.lake.session import interpreting
from tally.parts import Taking
from tally.sources.frames import bounded_records
from tally.sources.records.decode import are_many, decode
from tally.sources.records.plain import LONGEST
from tally.sources.records.valid import Valid
from tally.speed.shared.events import (
    PLACE,
    Judged,
    Owner,
    are_few,
    as_seen,
    identified,
    identified_here,
    in_millis,
    newest_of,
    newest_times,
    offsets,
    once,
    seen,
    without,
    without_here,
)
from tally.speed.shared.ids import Ids
from tally.speed.shared.one_pass import OnePass, Passed
from tally.speed.shared.telling import Telling

log = logging.getLogger(__name__)
# Over 700 rows a plan is as fast when it is not compiled; where that ends was not measured.
FEW_ROWS = 2_000
# A pass that is refused was for nothing: records like these may come again, and others after them.
REST = 10
# What of a record of Kafka's is decoded, as Spark's source gives it.
RECORD = (
    StructType()
    .add("value", BinaryType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
)
Bounds = Mapping[int, tuple[int, int]]


class Reading:
    """How a topic's events are read: planned once, and put over the records of each micro-batch."""

    def __init__(self, spark: SparkSession, topic: Topic) -> None:
        self.spark, self.topic = spark, topic
        self.records = spark.createDataFrame([], RECORD)
        self.sending = Template.of(sent(self.records), self.records)
        self.shape = spark.createDataFrame([], topic.ddl)
        self.together = False  # the last records were read by Python's workers, so they are there
        self.valid_here = Valid.of(topic)  # None: what its records are is Spark's to say
        self.rest = 0  # so many more large micro-batches that are not tried in one pass
        self.telling = Telling(topic, self.unsure)

    # What Spark's plans alone need is made when the first of them is.

    @cached_property
    def shaped(self) -> Template:
        return Template.of(self.shape, self.shape)

    @cached_property
    def interpreting(self) -> SparkSession:
        return interpreting(self.spark)

    @cached_property
    def decoding(self) -> Template:
        """The valid ones of no records."""
        return Template.of(self.decoded(together=False), self.records)

    @cached_property
    def decoding_together(self) -> Template:
        """The same where Python's workers read the plain records."""
        return Template.of(self.decoded(together=True), self.records)

    def decoded(self, *, together: bool) -> DataFrame:
        valid = decode(self.records, self.topic, together=together).where(F.col("_reason").isNull())
        return valid.select(*self.topic.columns, *PLACE, "_broker_time")

    def session(self, rows: int) -> SparkSession:
        """The session that runs a plan over so many rows."""
        return self.interpreting if rows <= FEW_ROWS else self.spark

    @contextmanager
    def valid(self, ranges: Bounds) -> Iterator[DataFrame]:
        """The valid events of ranges of offsets, decoded once for all that is made of them."""
        count, records = offsets(ranges), bounded_records(self.spark, self.topic, ranges)
        self.together = are_many(count) or (self.together and not are_few(count))
        events = (self.decoding_together if self.together else self.decoding).over(records)
        events = (events.coalesce(1) if are_few(count) else events).persist()
        try:
            yield events
        finally:
            events.unpersist()

    @contextmanager
    def judged(
        self, ranges: Bounds, ids: Ids | None, late_watermark: int, takings: Mapping[Owner, Taking]
    ) -> Iterator[Judged]:
        """The events of a micro-batch by the watermark before it; without ids, its windows decide what is late.

        `takings` are of all pipelines that are to take them, if each can while they are read.
        """
        with ExitStack() as kept:
            decoded = once(lambda: kept.enter_context(self.valid(ranges)))
            leaf = once(lambda: self.shaped.leaf(decoded()))
            count = offsets(ranges)
            if are_few(count) and (events := self.read_here(ranges)) is not None:
                yield self.judged_here(events, count, ids, late_watermark)
            elif takings and (passed := self.read_in_one_pass(ranges, takings, ids, late_watermark)) is not None:
                out = passed.left_out
                frame = once(lambda: self.shaped.leaf(without(decoded(), out)))
                yield Judged(
                    offsets=count, seen=passed.seen, frame=frame, parts=passed.parts, brought=passed.brought
                )  # fmt: skip
            elif ids is not None:
                yield self.judged_by_ids(decoded(), count, ids, late_watermark)
            else:
                yield Judged(offsets=count, seen=seen(decoded(), self.topic), frame=leaf)

    def judged_by_ids(self, events: DataFrame, count: int, ids: Ids, late_watermark: int) -> Judged:
        """Many events, of which each id is taken once."""
        found = identified(events, self.topic)
        left_out, brought = ids.told_apart(found, late_watermark)
        times = {"partition": found["_partition"], "event": in_millis(found["_time"])}
        newest = newest_of(pa.table({**times, "record": found["_arrived"], "first": found["_arrived"]}))
        return Judged(
            offsets=count,
            seen=as_seen(newest),
            frame=once(lambda: self.shaped.leaf(without(events, left_out))),
            brought=brought,
        )

    # A few records, in this process.

    def read_here(self, ranges: Bounds) -> pa.Table | None:
        """Their valid events; None where one is too long to be brought here."""
        if self.valid_here is None:
            return None
        given = self.sending.over(bounded_records(self.spark, self.topic, ranges)).coalesce(1).toArrow()
        if pc.any(given["_long"]).as_py():
            return None
        events, unsure = self.valid_here.told_apart(given.drop_columns("_long"))
        return pa.concat_tables([events, self.by_reference(unsure, events.schema)])

    def by_reference(self, unsure: pa.Table, schema: pa.Schema) -> pa.Table:
        """The valid events among records that are not sure."""
        if not unsure.num_rows:
            return schema.empty_table()
        few = self.spark.createDataFrame(unsure, RECORD).coalesce(1)
        found = self.decoding.on(self.decoding.leaf(few), self.session(unsure.num_rows)).toArrow()
        return found.select(schema.names).cast(schema)

    def judged_here(self, events: pa.Table, count: int, ids: Ids | None, late_watermark: int) -> Judged:
        taken, brought = events, None

        def leaf() -> Any:
            frame = self.spark.createDataFrame(taken).coalesce(1) if taken.num_rows else self.shape
            return self.shaped.leaf(frame)

        if ids is not None:
            assert self.topic.unique
            found = identified_here(events, self.topic.unique, self.topic.event_time)
            left_out, brought = ids.told_apart(found, late_watermark)
            taken = without_here(events, left_out)
        return Judged(
            offsets=count,
            seen=as_seen(newest_times(events, self.topic.event_time)),
            frame=once(leaf),
            events=taken,
            brought=brought,
        )

    # Many records, in Spark's workers.

    def read_in_one_pass(
        self, ranges: Bounds, takings: Mapping[Owner, Taking], ids: Ids | None = None, late_watermark: int = 0
    ) -> Passed | None:
        """What pipelines make of them; None where they are none for that."""
        if self.valid_here is None or self.rest:
            self.rest = max(0, self.rest - 1)
            return None
        of = OnePass(time=self.topic.event_time, valid=self.valid_here, takings=takings)
        if ids is not None:
            return self.telling.over(of, ids, late_watermark, partial(self.passed, ranges))
        if (passed := self.passed(ranges, of)) is None:
            return None
        events = self.unsure(passed)
        return of.with_newest(of.with_events(passed, events), events)

    def passed(self, ranges: Bounds, of: OnePass) -> Passed | None:
        """A pass over the records; one that fails or refuses them was for nothing."""
        try:
            passed = of.over(self.sending.over(bounded_records(self.spark, self.topic, ranges)))
        except (PySparkException, PicklingError) as error:
            # Whose fault it is, Spark's own plans tell: one runs for each pipeline.
            log.warning("many records of %s are not taken in one pass: %s", self.topic.name, error)
            return None
        if passed is None:
            self.rest = REST
        return passed

    def unsure(self, passed: Passed) -> pa.Table:
        """The valid events among the records that a pass was not sure of."""
        assert self.valid_here is not None
        schema = self.valid_here.schema
        return self.by_reference(pa.concat_tables(passed.unsure), schema) if passed.unsure else schema.empty_table()


def sent(records: DataFrame) -> DataFrame:
    """Records as they are sent to Python; of one that is too long, only that it is."""
    long = F.coalesce(F.octet_length("value") > LONGEST, F.lit(False))
    value = F.when(~long, F.col("value")).alias("value")
    return records.select(value, "partition", "offset", "timestamp", long.alias("_long"))
