"""What the stream must have put out for ranges of windows, worked out from the archive and the ledger alone."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.batch.events import applied, archived
from tally.batch.scope import session_scope
from tally.catalog.duration import millis
from tally.catalog.ranges import Range, ceil, events_of, floor, merge
from tally.catalog.spec import Pipeline, Topic
from tally.reconcile import fate
from tally.reconcile.cut import Cut, Offsets
from tally.reconcile.digest import row_hash
from tally.reconcile.filtered import with_filtered
from tally.reconcile.groups import follow_groups
from tally.reconcile.walk import walk
from tally.sources.frames import flatten, with_window
from tally.sources.ranged import in_ranges


def events_near(spark: SparkSession, cut: Cut, topic: Topic, ranges: Sequence[Range]) -> DataFrame:
    """A topic's archived events in ranges of event time, with all those that decide what becomes of them."""
    near = millis(topic.lateness) if topic.unique else 0
    around = merge((start - near, end + near) for start, end in ranges)
    return in_ranges(archived(spark, topic, cut.stated.versions[topic.name]), topic.event_time, around)


def first_offsets(spark: SparkSession, cut: Cut, ranges: Sequence[Sequence[Range]]) -> Offsets:
    """The lowest offset of each partition of each topic among the events that a comparison looks at."""
    found: Offsets = {}
    for topic, wanted in zip(cut.pipeline.reads, ranges, strict=True):
        if wanted:
            lowest = events_near(spark, cut, topic, wanted).groupBy("_partition").agg(F.min("_offset"))
            found[topic.name] = dict(map(tuple, lowest.collect()))
    return found


def tagged_events(spark: SparkSession, cut: Cut, topic: Topic, ranges: Sequence[Range]) -> DataFrame:
    """A topic's archived events in ranges of event time, each with its fate."""
    wide = events_near(spark, cut, topic, ranges)
    tagged = in_ranges(fate.with_fate(wide, topic, cut), topic.event_time, ranges)
    tagged = tagged.withColumn("_differs", F.lit(True))
    return with_filtered(tagged, cut.pipeline) if cut.filters else tagged.withColumn("_filtered", F.lit(False))


def with_differs(events: DataFrame, batch: DataFrame, stream: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Events with `_differs`: whether the layers' rows of their key differ anywhere; only these need the walk."""
    key = [F.col(name).alias(f"_key_{name}") for name in pipeline.key]
    signed = [rows.select(*key, (row_hash(rows, exact=True) * sign).alias("_h"), F.lit(sign).alias("_n"))
              for rows, sign in ((batch, 1), (stream, -1))]  # fmt: skip
    sums = signed[0].unionByName(signed[1]).groupBy(*(f"_key_{name}" for name in pipeline.key))
    differing = sums.agg(F.sum("_h").alias("_h"), F.sum("_n").alias("_n")).where("_h <> 0 OR _n <> 0")
    same = [F.col(name).eqNullSafe(F.col(f"_key_{name}")) for name in pipeline.key]
    joined = events.drop("_differs").join(F.broadcast(differing), same, "left")
    return joined.withColumn("_differs", F.col("_n").isNotNull()).select(*events.columns)


def event_ranges(cut: Cut, ranges: Sequence[Range]) -> list[list[Range]]:
    """Per topic, the event times that windows starting in the ranges are made of, in whole cells of the grid."""
    pipeline, step = cut.pipeline, millis(cut.pipeline.window.step)

    def cells(wanted: Range, first: bool) -> Range:
        start, end = events_of(wanted, pipeline, first=first)
        return floor(start, step), ceil(end, step)

    return [merge(cells(wanted, at == 0) for wanted in ranges) for at in range(len(pipeline.reads))]


def is_session(cut: Cut) -> bool:
    return cut.pipeline.window.kind == "session"


def events_around(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> list[list[Range]]:
    """Per topic, the event times behind the windows; whole sessions where windows are sessions."""
    if not is_session(cut):
        return event_ranges(cut, ranges)
    return [session_scope(spark, cut.pipeline, ranges, cut.stated.versions)[1]]


def replayed(cut: Cut, frames: Sequence[DataFrame], ranges: Sequence[Range]) -> DataFrame:
    """The rows that the function gives for the events that the stream accepted, window by window."""
    pipeline = cut.pipeline
    taken = [accepted(frame) for frame in frames]
    first = in_windows(taken[0], cut)
    others = [frame.select(*topic.columns) for frame, topic in zip(taken[1:], pipeline.reads[1:], strict=True)]
    bare = first.select(*pipeline.reads[0].columns, "window")
    return in_ranges(flatten(pipeline.function(bare, *others), pipeline), "window_start", ranges)


def restated(cut: Cut, frames: Sequence[DataFrame], ranges: Sequence[Range]) -> DataFrame:
    """The rows that the function gives for the events that the batch counts: what its table must hold."""
    return in_ranges(applied(cut.pipeline, [frame.where("_counted") for frame in frames]), "window_start", ranges)


def accepted(frame: DataFrame) -> DataFrame:
    """The events that reached the stream's state, once for each micro-batch that held them."""
    kept = frame.where(F.col("_fate").isin(fate.ACCEPTED, fate.TWICE))
    again = {"_batch_index": F.col("_again_index"), "_late_at": F.col("_again_late_at")}
    return kept.unionByName(frame.where(F.col("_fate") == fate.TWICE).withColumns(again))


def in_windows(events: DataFrame, cut: Cut) -> DataFrame:
    """Accepted events with the window that the stream put them into; those late for a window are not in it."""
    pipeline = cut.pipeline
    if is_session(cut):
        return in_sessions(events, cut)
    windowed = with_window(events, pipeline)
    if cut.late_rule != "window":
        return windowed
    return windowed.where(F.unix_micros("window.end") > F.col("_late_at") * 1000)


def in_sessions(events: DataFrame, cut: Cut) -> DataFrame:
    """Accepted events with the session that the stream emitted for them, by walking its micro-batches in order."""
    walked = walked_events(events, cut).where("_start IS NOT NULL")
    window = F.struct(F.timestamp_micros("_start").alias("start"), F.timestamp_micros("_end").alias("end"))
    return walked.withColumn("window", window)


def walked_events(events: DataFrame, cut: Cut) -> DataFrame:
    """Accepted events that are not late for a session of their own, with `_start`, `_end` and `_split`."""
    pipeline, topic = cut.pipeline, cut.pipeline.reads[0]
    events = events.where("_differs AND NOT _filtered")
    gap, ends = millis(pipeline.window.size) * 1000, [batch.watermark * 1000 for batch in cut.batches]
    timed = events.withColumn("_time", F.unix_micros(topic.event_time))
    if cut.late_rule == "window":
        timed = timed.where(F.col("_time") + gap > F.col("_late_at") * 1000)
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

    places = timed.select(*pipeline.key, "_partition", "_offset", "_time", "_batch_index")
    walked = follow_groups(places, pipeline.key, ["_batch_index", "_time"], follow, shape)
    return timed.join(walked, ["_partition", "_offset", "_batch_index"])
