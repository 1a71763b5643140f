"""A join of topics in windows of the clock, those of its first topic's events."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from tally.base.duration import millis
from tally.catalog.spec import Topic
from tally.kinds.frames import MARK, timed, unmarked
from tally.kinds.kind import LateRule
from tally.kinds.windowed import Windowed

ONE_AT_A_TIME = threading.Lock()  # what each puts back is what was there before all of them


@dataclass(frozen=True, kw_only=True)
class Join(Windowed):
    """Several topics, each event of the first with those that lie no further from it than the reach."""

    def unbounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """The events' times are event times below the join; the window is marked as one again above it."""
        first, *others = (timed(frame, topic) for frame, topic in zip(frames, self.pipeline.reads, strict=True))
        return [unmarked(self.with_window(first), "window"), *others]

    def streamed(self, frames: Sequence[DataFrame]) -> DataFrame:
        with window_above_joins(self.pipeline.reads[0]):
            return super().streamed(frames)

    def late_rule(self, spark: SparkSession) -> LateRule:
        return "event"

    @property
    def alone(self) -> str | None:
        return "it joins topics: an event meets others that come in other micro-batches"

    @property
    def by_event(self) -> bool:
        return False

    def sample_times(self, chance: random.Random, start: int, count: int) -> list[list[int]]:
        """Those of the other topics at the reach from some event of the first, within it, or at once."""
        (first,), reach = super().sample_times(chance, start, count), millis(self.pipeline.reach or timedelta(0)) * 1000
        found = [first]
        for _ in self.pipeline.reads[1:]:
            apart = [chance.choice([0, reach, -reach, chance.randint(-reach, reach)]) for _ in range(count)]
            found.append([chance.choice(first) + by for by in apart])
        return found


@contextmanager
def window_above_joins(topic: Topic) -> Iterator[None]:
    """While a function runs over streams, `groupBy("window")` above a join groups by the window as an event time.

    Without that mark Spark would keep the state of every window for ever. The times themselves are plain values there.
    Functions that other threads run meanwhile group as they always do.
    """
    with ONE_AT_A_TIME:
        yield from grouping_by_marked_windows(topic)


def grouping_by_marked_windows(topic: Topic) -> Iterator[None]:
    kind: Any = ClassicFrame
    plain, delay, mine = kind.groupBy, {MARK: millis(topic.lateness)}, threading.get_ident()

    def group_by(frame: DataFrame, *columns: Any) -> Any:
        if columns and "window" in columns and threading.get_ident() == mine:
            times = [f.name for f in frame.schema.fields if MARK in f.metadata and frame.columns.count(f.name) == 1]
            window = F.col("window").alias("window", metadata=delay)
            frame = unmarked(frame, *times).withColumn("window", window)
        return plain(frame, *columns)

    kind.groupBy = kind.groupby = group_by
    try:
        yield
    finally:
        kind.groupBy = kind.groupby = plain
