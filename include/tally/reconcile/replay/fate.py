"""What became of each archived event in the stream, told by the ledger: which micro-batch held it, and if late."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.base.duration import millis
from tally.catalog.ranges import merge
from tally.catalog.spec import Topic
from tally.kinds.fates import ACCEPTED, DUPLICATE, IN_FLIGHT, LATE, SKIPPED, TWICE
from tally.kinds.groups import follow_groups
from tally.reconcile.cut import Cut
from tally.sources.frames import copies

Intervals = dict[int, list[tuple[int, int, int]]]


def intervals(cut: Cut, topic: str) -> Intervals:
    """Per partition, the offset ranges of the micro-batches in the order of offsets: (from, to, index of the batch)."""
    found: Intervals = {}
    for index, batch in enumerate(cut.batches):
        for partition, (start, to) in batch.ranges.get(topic, {}).items():
            if to > start:
                found.setdefault(partition, []).append((start, to, index))
    return {partition: sorted(parts) for partition, parts in found.items()}


def doubled(parts: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The offsets that more than one micro-batch held."""
    twice, reached = [], 0
    for start, to, _ in sorted(parts):
        if start < reached:
            twice.append((start, min(to, reached)))
        reached = max(reached, to)
    return merge(twice)


GAP, UNREAD = -1, -2


def batch_lookup(cut: Cut, topic: str) -> Callable[[Column, Column], Column]:
    """A column function (partition, offset) -> `index` and `late_at` of the first micro-batch that held it.

    The index is GAP or UNREAD where none did; `again` and `again_late_at` tell of a second one (or GAP).
    """
    import numpy as np

    marks = np.array([batch.late_watermark for batch in cut.batches], dtype="int64")
    held = {
        p: tuple(np.array(column) for column in zip(*parts, strict=True)) for p, parts in intervals(cut, topic).items()
    }
    twice = {p: (parts, doubled(parts)) for p, parts in intervals(cut, topic).items()}
    reached = cut.last.ends(topic)

    def marked(numbers: Any) -> Any:
        late = pd.array(np.where(numbers >= 0, marks[np.maximum(numbers, 0)], 0), dtype="Int64")
        late[numbers < 0] = pd.NA
        return late

    def look_up(chunks: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.DataFrame]:
        for partitions, offsets in chunks:
            out, again = np.full(len(offsets), UNREAD, dtype="int64"), np.full(len(offsets), GAP, dtype="int64")
            for partition, end in reached.items():
                out[((partitions == partition) & (offsets < end)).to_numpy()] = GAP
            for partition, (starts, ends, numbers) in held.items():
                mine = (partitions == partition).to_numpy()
                at = offsets[mine].to_numpy()
                before = np.maximum(np.searchsorted(starts, at, side="right") - 1, 0)
                inside = (at >= starts[before]) & (at < ends[before])
                found = np.where(inside, numbers[before], out[mine])
                second = np.full(len(at), GAP, dtype="int64")
                parts, ranges = twice[partition]
                for start, end in ranges:
                    for place in np.flatnonzero((at >= start) & (at < end)):
                        holders = sorted(number for a, b, number in parts if a <= at[place] < b)
                        found[place], second[place] = holders[:2]
                out[mine], again[mine] = found, second
            told = {"index": out, "late_at": marked(out), "again": again, "again_late_at": marked(again)}
            yield pd.DataFrame(told)

    shape = "index bigint, late_at bigint, again bigint, again_late_at bigint"
    # Spark reads the kind of function from evaluated hints, and this module's are text.
    look_up.__annotations__ = {"chunks": Iterator[tuple[pd.Series, pd.Series]], "return": Iterator[pd.DataFrame]}
    return F.pandas_udf(look_up, shape)  # type: ignore[no-any-return]


def with_fate(events: DataFrame, topic: Topic, cut: Cut) -> DataFrame:
    """Archived events (duplicates among them) with `_batch_index`, `_late_at`, `_fate` and `_counted` (by the batch).

    `_newest` is the last ingest that had a say in whether the batch counts it: its own, or that of a copy.
    `_fate` knows nothing of windows: where the rule is the window's end, late is decided later, for each window.
    An event that was read again has `_again_index` and `_again_late_at`; with an id, that changes nothing.
    """
    found = batch_lookup(cut, topic.name)(F.col("_partition"), F.col("_offset"))
    tagged = (
        events.withColumn("_found", found)
        .withColumns(
            {
                "_batch_index": F.col("_found.index"),
                "_late_at": F.col("_found.late_at"),
                "_again_index": F.col("_found.again"),
                "_again_late_at": F.col("_found.again_late_at"),
            }
        )
        .drop("_found")
    )
    time = F.unix_micros(topic.event_time)  # as Spark compares it; watermarks are whole milliseconds
    by_time = cut.late_rule == "event"
    late = (time <= F.col("_late_at") * 1000) if by_time else F.lit(False)
    in_time_again = (time > F.col("_again_late_at") * 1000) if by_time else F.lit(True)
    twice = F.lit(False) if topic.unique else (F.col("_again_index") >= 0) & in_time_again
    fate = (
        F.when(F.col("_batch_index") == GAP, SKIPPED)
        .when(F.col("_batch_index") == UNREAD, IN_FLIGHT)
        .when(late, LATE)
        .when(twice, TWICE)
        .otherwise(ACCEPTED)
    )
    tagged = tagged.withColumn("_fate", fate)
    if not topic.unique:
        return tagged.withColumns({"_counted": F.lit(True), "_newest": F.col("_ingest")})
    marked = tagged.join(copies(events, topic, F.max("_ingest")), ["_partition", "_offset"], "left").withColumns(
        {"_counted": ~F.coalesce("_later", F.lit(False)), "_newest": F.coalesce("_newest", "_ingest")}
    )
    return with_stream_duplicates(marked.drop("_later"), topic, cut)


def with_stream_duplicates(tagged: DataFrame, topic: Topic, cut: Cut) -> DataFrame:
    """Mark the accepted copies of a unique id that the stream's own dropping of duplicates left out."""
    assert topic.unique
    copies = tagged.groupBy(topic.unique).agg(F.count("*").alias("_times")).where("_times > 1").select(topic.unique)
    several = tagged.where(F.col("_fate") == ACCEPTED).join(copies, topic.unique, "left_semi")
    delay, ends = millis(topic.lateness) * 1000, [batch.watermark * 1000 for batch in cut.batches]
    read = [{p: at for at, p in enumerate(batch.ranges.get(topic.name, {}))} for batch in cut.batches]
    shape = "_partition int, _offset bigint, _again boolean"

    def keep_first(group: pd.DataFrame) -> pd.DataFrame:
        """Follow the state of one id: its first copy holds it until the watermark passes its time + lateness."""
        copies = list(zip(group["_batch_index"], group["_partition"], group["_offset"], group["_time"], strict=True))
        copies.sort(key=lambda copy: (copy[0], read[copy[0]][copy[1]], copy[2]))  # as Spark met them
        again, free_from = [], -1
        for index, _, _, time in copies:
            again.append(index < free_from)
            if index >= free_from:
                free_from = max(index, bisect_left(ends, time + delay)) + 1
        places = {"_partition": [copy[1] for copy in copies], "_offset": [copy[2] for copy in copies]}
        return pd.DataFrame({**places, "_again": again})

    wanted = several.select(
        topic.unique, "_partition", "_offset", "_batch_index", F.unix_micros(topic.event_time).alias("_time")
    )
    again = follow_groups(wanted, [topic.unique], ["_batch_index"], keep_first, shape).where("_again")
    joined = tagged.join(again, ["_partition", "_offset"], "left")
    fate = F.when(F.col("_again"), DUPLICATE).otherwise(F.col("_fate"))
    return joined.withColumn("_fate", fate).drop("_again")
