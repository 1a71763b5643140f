"""Tumbling and hopping windows: where they begin and end follows from the clock alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import millis, spark_interval
from tally.catalog.ranges import Range, ceil, event_ranges, events_of, floor, merge
from tally.kinds.clock_windows import ClockWindows
from tally.kinds.frames import bare, called, flatten, timed, unmarked
from tally.kinds.kind import History, Kind, Numbers, Scope
from tally.sources.archived import Versions, events
from tally.sources.ranged import in_ranges


@dataclass(frozen=True, kw_only=True)
class Windowed(Kind):
    """One topic in windows of the clock."""

    def bounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        first, *others = frames
        return [self.with_window(first), *others]

    def with_window(self, frame: DataFrame) -> DataFrame:
        """The frame of the first topic with its `window` column; a hopping window gives a row for each window."""
        time, window = self.pipeline.reads[0].event_time, self.pipeline.window
        return frame.withColumn("window", F.window(time, spark_interval(window.size), spark_interval(window.step)))

    @property
    def clock_windows(self) -> ClockWindows | None:
        size, step = (millis(span) * 1000 for span in (self.pipeline.window.size, self.pipeline.window.step))
        return ClockWindows(time=self.pipeline.reads[0].event_time, size=size, step=step)

    def unbounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """The window is the event time; its own is a plain value, and a function may group by it too."""
        (topic,), (frame,) = self.pipeline.reads, frames
        return [unmarked(self.with_window(timed(frame, topic)), topic.event_time)]

    def streamed(self, frames: Sequence[DataFrame]) -> DataFrame:
        return self.flattened(called(self.pipeline, frames))

    def flattened(self, out: DataFrame) -> DataFrame:
        bounds = F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
        return flatten(out, self.pipeline, *bounds)

    @property
    def longest(self) -> timedelta | None:
        return self.pipeline.window.size

    @property
    def alone(self) -> str | None:
        return None

    def scope(self, spark: SparkSession, ranges: Sequence[Range], versions: Versions) -> Scope:
        frames = []
        for at, topic in enumerate(self.pipeline.reads):
            wanted = merge(events_of(r, self.pipeline, first=at == 0) for r in ranges)
            frames.append(events(spark, topic, wanted, versions[topic.name]))
        return Scope(ranges=merge(ranges), rows=in_ranges(self.applied(frames), "window_start", ranges))

    def touched(self, spark: SparkSession, starts: Sequence[Range], versions: Versions) -> list[Range]:
        return merge(starts)

    def replay_reads(self, spark: SparkSession, ends: Mapping[int, int], versions: Versions) -> list[list[Range]]:
        step = millis(self.pipeline.window.step)
        return event_ranges(self.pipeline, merge((slot, slot + step) for slot in ends))

    def narrowed(self, tagged: DataFrame, keys: DataFrame) -> DataFrame:
        return tagged

    def replayed(self, frames: Sequence[DataFrame], history: History) -> list[DataFrame]:
        first, *others = self.bounded(frames)
        if history.late_rule == "window":
            first = first.where(F.unix_micros("window.end") > F.col("_late_at") * 1000)
        return bare([first, *others], self.pipeline)

    def with_split(self, tagged: DataFrame, history: History) -> DataFrame:
        return tagged.withColumn("_split", F.lit(False))

    def over_at(self, time: Column, *, every: bool) -> Column:
        """Of windows that overlap, the oldest that an event is in is over first."""
        size, slide = (millis(span) * 1000 for span in (self.pipeline.window.size, self.pipeline.window.step))
        newest = time - F.pmod(time, F.lit(slide))
        earlier = F.lit(0) if every else F.floor((size - 1 - (time - newest)) / slide) * slide
        return newest - earlier + size

    def over_times(self, times: Numbers, *, every: bool) -> Numbers:
        size, slide = (millis(span) * 1000 for span in (self.pipeline.window.size, self.pipeline.window.step))
        newest = times - times % slide
        earlier = 0 if every else (size - 1 - (times - newest)) // slide * slide
        over: Numbers = newest - earlier + size
        return over

    def made_of(self, slot: int, end: int) -> list[Range]:
        """The one window of a slot begins where the slot does."""
        step = millis(self.pipeline.window.step)
        found = [events_of((slot, slot + 1), self.pipeline, first=at == 0) for at, _ in enumerate(self.pipeline.reads)]
        return [(floor(start, step), ceil(last - 1, step)) for start, last in found]

    def causes_from(self, slot: int, end: int) -> range:
        return range(slot, slot + 1)

    def concerned(self, slots: Iterable[int], differing: Set[int]) -> Set[int]:
        return {slot for slot in slots if slot in differing}

    def sample_times(self, chance: random.Random, start: int, count: int) -> list[list[int]]:
        size, step = (millis(span) * 1000 for span in (self.pipeline.window.size, self.pipeline.window.step))
        span, grid = max(6 * step, size + 3 * step), max(step // 8, 1)
        times = [start + chance.randrange(span) for _ in range(count)]
        times[::2] = [start + (time - start) // grid * grid for time in times[::2]]
        return [times]
