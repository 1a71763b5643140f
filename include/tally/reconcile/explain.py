"""How many events stand behind the differences, by cause, and which cause each differing row has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.catalog.duration import millis
from tally.catalog.ranges import windows_of
from tally.catalog.spec import Topic
from tally.reconcile import fate
from tally.reconcile.causes import JOINED
from tally.reconcile.cut import Cut
from tally.reconcile.replay import accepted, walked_events
from tally.sources.frames import with_window

SPLIT = "split"
Cells = dict[tuple[Any, ...], set[str]]


def causes(frame: DataFrame, topic: Topic, cut: Cut, *, first: bool) -> DataFrame:
    """The events that one layer counts and the other doesn't, each once, with `_cause` and `_cell`."""
    pipeline = cut.pipeline
    step = millis(pipeline.window.step)
    time = F.unix_millis(topic.event_time)
    cell = time - F.pmod(time, F.lit(step))
    cause = F.when(~F.col("_counted") & (F.col("_fate") == fate.ACCEPTED), fate.DUPLICATE).when(
        F.col("_counted") & (F.col("_fate") != fate.ACCEPTED),
        settled(F.col("_fate"), F.unix_micros(topic.event_time), cut),
    )
    marked = frame.withColumn("_cause", cause).withColumn("_cell", cell)
    if first and pipeline.window.kind == "session":
        marked = with_session_causes(marked, frame, cut)
    elif first and cut.late_rule == "window":
        marked = with_window_causes(marked, frame, cut)
    return marked.where("_cause IS NOT NULL AND NOT _filtered")


def settled(found: Column, time: Column, cut: Cut) -> Column:
    """An event that the stream has yet to read is late already where the watermark has passed its microsecond."""
    return F.when((found == fate.IN_FLIGHT) & (time <= cut.last.watermark * 1000), fate.LATE).otherwise(found)


def with_window_causes(marked: DataFrame, frame: DataFrame, cut: Cut) -> DataFrame:
    """An accepted event is late too when any of its windows was over before its micro-batch."""
    over = F.unix_micros("window.end") <= F.coalesce("_late_at", F.lit(cut.last.watermark)) * 1000
    open_to = with_window(frame.where("_counted"), cut.pipeline).where(over)
    late = open_to.where(F.col("_fate").isin(fate.ACCEPTED, fate.IN_FLIGHT)).select("_partition", "_offset").distinct()
    joined = marked.join(late.withColumn("_over", F.lit(True)), ["_partition", "_offset"], "left")
    return joined.withColumn("_cause", F.when(F.col("_over"), fate.LATE).otherwise(F.col("_cause"))).drop("_over")


def with_session_causes(marked: DataFrame, frame: DataFrame, cut: Cut) -> DataFrame:
    """Late for a session of its own, or accepted beside one that was over and so split off."""
    gap = millis(cut.pipeline.window.size) * 1000
    time = F.unix_micros(cut.pipeline.reads[0].event_time)
    late_at = F.coalesce("_late_at", F.lit(cut.last.watermark)) * 1000
    own = F.lit(cut.late_rule == "window") & (time + gap <= late_at)
    walked = walked_events(accepted(frame), cut).where("_split")
    split = walked.select("_partition", "_offset", F.lit(True).alias("_off")).distinct()
    joined = marked.join(split, ["_partition", "_offset"], "left")
    missed = F.col("_counted") & F.col("_fate").isin(fate.ACCEPTED, fate.IN_FLIGHT)
    cause = F.when(missed & own, fate.LATE).when(F.col("_off") & F.col("_counted"), SPLIT).otherwise(F.col("_cause"))
    return joined.withColumn("_cause", cause).drop("_off")


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """Events by cause, the causes at each slot (and key, where the topic carries its columns), and events by slot."""

    events: Counter[str]
    cells: Cells
    by_slot: Counter[int]


def gather(frames: Sequence[DataFrame], cut: Cut, differing: Collection[int]) -> Gathered:
    """What stands behind the differences.

    Only events are counted that may be part of a slot that differs; a session's slots are not known per event.
    """
    events, by_slot = Counter[str](), Counter[int]()
    cells: Cells = defaultdict(set)
    for at, (frame, topic) in enumerate(zip(frames, cut.pipeline.reads, strict=True)):
        keys = key_columns(cut, topic)
        found = causes(frame, topic, cut, first=at == 0).groupBy("_cause", "_cell", *keys).count().collect()
        for row in found:
            near = slots(cut, row["_cell"], first=at == 0)
            if cut.pipeline.window.kind == "session" or any(slot in differing for slot in near):
                events[row["_cause"]] += row["count"]
                by_slot[row["_cell"]] += row["count"] if row["_cause"] != fate.IN_FLIGHT else 0
            key = tuple(row[name] for name in keys)
            for slot in near:
                cells[(slot, *key)].add(row["_cause"])
    return Gathered(events=events, cells=cells, by_slot=by_slot)


def key_columns(cut: Cut, topic: Topic) -> list[str]:
    """The key, where a single topic carries all of it; a key made by the function or a join is not known per event."""
    single = len(cut.pipeline.reads) == 1
    return list(cut.pipeline.key) if single and set(cut.pipeline.key) <= set(topic.columns) else []


def slots(cut: Cut, cell: int, *, first: bool) -> range:
    """The slots whose windows an event in a cell may be part of."""
    step = millis(cut.pipeline.window.step)
    start, end = windows_of((cell, cell + step), cut.pipeline, first=first)
    return range(start, end, step)


def cause_of(row: dict[str, Any], cut: Cut, cells: Cells, keyed: bool) -> str:
    """The causes at a differing row's window and key, as one text; nothing where no event has one there."""
    key = tuple(row[name] for name in cut.pipeline.key) if keyed else ()
    start, step = row["_slot"], millis(cut.pipeline.window.step)
    reach = range(start, max(start + step, row["_end"]), step) if cut.pipeline.window.kind == "session" else [start]
    found: set[str] = set().union(*(cells.get((slot, *key), set()) for slot in reach))
    return JOINED.join(sorted(found))
