"""A streaming source whose rows are ranges of offsets: Spark's log, triggers and progress drive and show the stream.

The records themselves are read by Spark's own bounded Kafka reader, range by range, where the ranges are taken up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tally.base.errors import TallyError
from tally.sources.advance import advance

NAME = "tally_ranges"
SCHEMA = "topic STRING, partition INT, start BIGINT, end BIGINT"
# Each partition's offset by its number as text, below the topic's name: as Spark's own Kafka source writes them.
Told = dict[str, dict[str, int]]
one_at_a_time = Lock()


def register(spark: SparkSession) -> None:
    """Make the source known to a session, under this process's settings.

    Spark runs it in a process of its own, and of itself gives that the environment in which the JVM was once started.
    """
    context = spark.sparkContext
    with one_at_a_time:
        before = context.environment
        mine = {name: value for name, value in os.environ.items() if name.startswith("TALLY_")}
        context.environment = {**before, **mine}  # another one: whoever makes a function meanwhile goes through it
        try:
            spark.dataSource.register(TopicRanges)
        finally:
            context.environment = before


class TopicRanges(DataSource):  # type: ignore[misc]
    """Options: `topic`, `limit` (most offsets a micro-batch), and `begin`, where the stream begins, as JSON."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> RangeReader:
        return RangeReader(dict(self.options))


class Some(InputPartition):  # type: ignore[misc]
    """The ranges of one micro-batch: (topic, partition, start, end)."""

    def __init__(self, rows: Sequence[tuple[str, int, int, int]]) -> None:
        self.rows = rows


class RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Says how far a topic can be read; while much waits, its partitions advance together in broker time."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.topic, self.limit = options["topic"], int(options["limit"])
        self.begin: dict[str, int] = json.loads(options["begin"])
        self.until: dict[int, int] | None = None
        self.reached = 0

    def initialOffset(self) -> Told:
        return {self.topic: self.begin}

    def prepareForTriggerAvailableNow(self) -> None:
        self.until = self.ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.limit)

    def latestOffset(self, start: Told, limit: ReadLimit) -> Told:
        """Where the next micro-batch ends; where Kafka does not answer, nothing came: it is asked again."""
        starts = {int(partition): offset for partition, offset in start[self.topic].items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 1 << 62
        try:
            step = advance(starts, self.until or self.ends(), most, self.reached, self.since)
        except TallyError:
            return start
        self.reached = step.moment
        ends = {**starts, **step.ends}
        return {self.topic: {str(partition): ends[partition] for partition in sorted(ends)}}

    # Kafka's client is imported where it is asked: three of Spark's processes only look at these classes.

    def ends(self, *, hurry: bool = False) -> dict[int, int]:
        from tally.sources import kafka

        return kafka.end_offsets(self.topic, kafka.HURRY) if hurry else kafka.end_offsets(self.topic)

    def since(self, moment: int) -> dict[int, int]:
        from tally.sources import kafka

        return kafka.offsets_since(self.topic, moment)

    def reportLatestOffset(self) -> Told | None:
        try:
            found = self.until or self.ends(hurry=True)
        except TallyError:
            return None
        return {self.topic: {str(partition): offset for partition, offset in sorted(found.items())}}

    def partitions(self, start: Told, end: Told) -> Sequence[InputPartition]:
        before = start.get(self.topic, {})
        ranges = [(self.topic, int(p), before.get(p, 0), to) for p, to in end[self.topic].items()]
        return [Some([one for one in ranges if one[2] < one[3]])]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int, int, int]]:
        assert isinstance(partition, Some)
        yield from partition.rows
