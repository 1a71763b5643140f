"""Sessions: where one begins and ends follows from the other events of its key."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import millis, spark_interval
from tally.base.settings import settings
from tally.catalog.ranges import Range, ceil, merge
from tally.kinds.fates import accepted
from tally.kinds.frames import bare, called, flatten, timed, unmarked
from tally.kinds.groups import follow_groups
from tally.kinds.kind import History, Kind, Numbers, Scope
from tally.kinds.session_replay import walk
from tally.kinds.session_scope import Cells, whole
from tally.lake import delta
from tally.sources.archived import Versions, archived, events
from tally.sources.ranged import FEW, in_ranges, instant


@dataclass(frozen=True, kw_only=True)
class Sessions(Kind):
    """One topic in sessions of each key."""

    @property
    def gap(self) -> int:
        return millis(self.pipeline.window.gap)

    def bounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        (frame,), time = frames, self.pipeline.reads[0].event_time
        return [frame.withColumn("window", F.session_window(time, spark_interval(self.pipeline.window.gap)))]

    def unbounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """The window is the event time; its own is a plain value, and a function may group by it too."""
        (topic,), (frame,) = self.pipeline.reads, frames
        return [unmarked(*self.bounded([timed(frame, topic)]), topic.event_time)]

    def streamed(self, frames: Sequence[DataFrame]) -> DataFrame:
        return self.flattened(called(self.pipeline, frames))

    def flattened(self, out: DataFrame) -> DataFrame:
        # Spark pushes a filter on a session's bounds below its aggregation, where it cuts off events and chooses no
        # sessions. A generator in between stops that.
        bounds = F.inline(F.array(F.struct("window.start", "window.end")))
        return flatten(out, self.pipeline, bounds.alias("window_start", "window_end"))

    @property
    def longest(self) -> timedelta | None:
        return None

    @property
    def alone(self) -> str | None:
        return "its windows are sessions: an event that comes later can make one of two"

    def scope(self, spark: SparkSession, ranges: Sequence[Range], versions: Versions) -> Scope:
        """The ranges are widened to where their sessions begin and end."""
        starts, around = self.whole(spark, ranges, versions)
        rows = self.sessions(spark, around, versions)
        return Scope(ranges=starts, rows=in_ranges(rows, "window_start", starts))

    def sessions(self, spark: SparkSession, around: Sequence[Range], versions: Versions) -> DataFrame:
        """The sessions of the events in these ranges."""
        topic = self.pipeline.reads[0]
        return self.applied([events(spark, topic, around, versions[topic.name])])

    def whole(
        self, spark: SparkSession, ranges: Sequence[Range], versions: Versions
    ) -> tuple[list[Range], list[Range]]:
        """(starts, events): the starts of every session that meets a range, and the events that hold these whole."""
        if not ranges:
            return [], []

        def found_in(read: Sequence[Range]) -> Cells:
            return Cells.of(self.sessions(spark, read, versions), self.gap)

        return whole(ranges, self.gap, self.extent(spark, versions), found_in)

    def extent(self, spark: SparkSession, versions: Versions) -> Range:
        """The oldest and newest event time in the archive."""
        topic = self.pipeline.reads[0]
        time = F.unix_millis(topic.event_time)
        found = archived(spark, topic, versions[topic.name]).agg(F.min(time), F.max(time)).first()
        return (found[0], found[1]) if found is not None and found[0] is not None else (0, 0)

    def touched(self, spark: SparkSession, starts: Sequence[Range], versions: Versions) -> list[Range]:
        """A session is touched with all that it was, and all that it becomes: it may begin in another slot."""
        if not starts:
            return []
        old = self.stated(spark, starts)
        new, _ = self.whole(spark, merge([*starts, *old]), versions)
        return merge([*old, *new])

    def stated(self, spark: SparkSession, ranges: Sequence[Range]) -> list[Range]:
        """How far the sessions of the batch table that meet the ranges extend."""
        path = settings().table("batch", self.pipeline.name, self.pipeline.version)
        if delta.table(path) is None:
            return []
        rows = spark.read.format("delta").load(path)
        meets = [
            (F.col("window_start") < instant(end)) & (F.col("window_end") > instant(start))
            for start, end in merge(ranges, most=FEW)
        ]
        cells = Cells.of(rows.where(reduce(lambda a, b: a | b, meets)), self.gap)
        return merge(cells.met_by(wanted) for wanted in merge(ranges))

    def replay_reads(self, spark: SparkSession, ends: Mapping[int, int], versions: Versions) -> list[list[Range]]:
        """All sessions that either layer has, as far as the longest goes."""
        reached = merge((slot, max(slot + self.gap, end)) for slot, end in ends.items())
        return [self.whole(spark, reached, versions)[1]]

    def narrowed(self, tagged: DataFrame, keys: DataFrame) -> DataFrame:
        same = [F.col(name).eqNullSafe(F.col(f"_key_{name}")) for name in self.pipeline.key]
        marked = keys.withColumn("_differing", F.lit(True))
        joined = tagged.drop("_differs").join(F.broadcast(marked), same, "left")
        return joined.withColumn("_differs", F.col("_differing").isNotNull()).select(*tagged.columns)

    def replayed(self, frames: Sequence[DataFrame], history: History) -> list[DataFrame]:
        """With the session that the stream emitted for each, by walking its micro-batches in order."""
        walked = self.walked(frames[0], history).where("_start IS NOT NULL")
        window = F.struct(F.timestamp_micros("_start").alias("start"), F.timestamp_micros("_end").alias("end"))
        return bare([walked.withColumn("window", window)], self.pipeline)

    def walked(self, taken: DataFrame, history: History) -> DataFrame:
        """Accepted events that are not late for a session of their own, with `_start`, `_end` and `_split`."""
        pipeline, gap = self.pipeline, self.gap * 1000
        ends = [batch.watermark * 1000 for batch in history.batches]
        time = F.unix_micros(pipeline.reads[0].event_time)
        taken = taken.where("_differs AND NOT _filtered").withColumn("_time", time)
        if history.late_rule == "window":
            taken = taken.where(self.over_at(F.col("_time"), every=True) > F.col("_late_at") * 1000)
        shape = "_partition int, _offset bigint, _batch_index bigint, _start bigint, _end bigint, _split boolean"

        def follow(group: pd.DataFrame) -> pd.DataFrame:
            found = walk(group["_time"].tolist(), group["_batch_index"].tolist(), ends, gap)
            return pd.DataFrame(
                {
                    "_partition": group["_partition"].to_numpy(),
                    "_offset": group["_offset"].to_numpy(),
                    "_batch_index": group["_batch_index"].to_numpy(),
                    "_start": pd.array([w.session[0] if w.session else None for w in found], dtype="Int64"),
                    "_end": pd.array([w.session[1] if w.session else None for w in found], dtype="Int64"),
                    "_split": [w.split for w in found],
                }
            )

        places = taken.select(*pipeline.key, "_partition", "_offset", "_time", "_batch_index")
        walked = follow_groups(places, pipeline.key, ["_batch_index", "_time"], follow, shape)
        return taken.join(walked, ["_partition", "_offset", "_batch_index"])

    def with_split(self, tagged: DataFrame, history: History) -> DataFrame:
        """One that was accepted beside a session that was over began another, and so was split off."""
        split = self.walked(accepted(tagged), history).where("_split")
        places = split.select("_partition", "_offset", F.lit(True).alias("_off")).distinct()
        joined = tagged.join(places, ["_partition", "_offset"], "left")
        return joined.withColumn("_split", F.col("_off").isNotNull()).drop("_off")

    def over_at(self, time: Column, *, every: bool) -> Column:
        """Of an event by itself: what it joins lasts longer, and is open as long as it is."""
        return time + self.gap * 1000

    def over_times(self, times: Numbers, *, every: bool) -> Numbers:
        over: Numbers = times + self.gap * 1000
        return over

    def made_of(self, slot: int, end: int) -> list[Range]:
        """What came a gap before may have joined it to an earlier one."""
        return [(slot - self.gap, ceil(end + self.gap, self.gap))]

    def causes_from(self, slot: int, end: int) -> range:
        """A session is changed by events anywhere in it."""
        return range(slot, max(slot + self.gap, end), self.gap)

    def concerned(self, slots: Iterable[int], differing: Set[int]) -> Set[int]:
        """The session that an event is in may begin in any slot."""
        return differing if any(True for _ in slots) else set()

    def sample_times(self, chance: random.Random, start: int, count: int) -> list[list[int]]:
        """Eight stretches of a gap and a half, with a pause as long after each."""
        gap = self.gap * 1000
        times = [start + 3 * gap * chance.randrange(8) + chance.randrange(3 * gap // 2 + 1) for _ in range(count)]
        times[::9] = [time // 1_000_000 * 1_000_000 for time in times[::9]]
        return [times]
