"""What became of each archived event in the stream, told by the ledger: which micro-batch held it, and if late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.catalog.spec import Topic
from tally.kinds.fates import ACCEPTED, DUPLICATE, IN_FLIGHT, LATE, SKIPPED, TWICE
from tally.kinds.groups import follow_groups
from tally.reconcile.cut import Cut
from tally.reconcile.replay.holders import GAP, UNREAD, holders, late_marks, repeated
from tally.sources.frames import copies


def batch_lookup(cut: Cut, topic: str) -> Callable[[Column, Column], Column]:
    """A column function (partition, offset) -> `index` and `late_at` of the first micro-batch that held it.

    The index is GAP or UNREAD where none did; `again` and `again_late_at` tell of a second one (or GAP).
    """
    told, marks = holders(cut, topic), late_marks(cut)

    def marked(numbers: Any) -> Any:
        late = pd.array(np.where(numbers >= 0, marks[np.maximum(numbers, 0)], 0), dtype="Int64")
        late[numbers < 0] = pd.NA
        return late

    def look_up(chunks: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.DataFrame]:
        for partitions, offsets in chunks:
            first, second = told(partitions.to_numpy(), offsets.to_numpy())
            columns = {"index": first, "late_at": marked(first), "again": second, "again_late_at": marked(second)}
            yield pd.DataFrame(columns)

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
    shape, follow = "_partition int, _offset bigint, _again boolean", repeated(cut, topic)

    def keep_first(group: pd.DataFrame) -> pd.DataFrame:
        columns = (group[name] for name in ("_batch_index", "_partition", "_offset", "_time"))
        return pd.DataFrame(follow(zip(*columns, strict=True)), columns=["_partition", "_offset", "_again"])

    wanted = several.select(
        topic.unique, "_partition", "_offset", "_batch_index", F.unix_micros(topic.event_time).alias("_time")
    )
    again = follow_groups(wanted, [topic.unique], ["_batch_index"], keep_first, shape).where("_again")
    joined = tagged.join(again, ["_partition", "_offset"], "left")
    fate = F.when(F.col("_again"), DUPLICATE).otherwise(F.col("_fate"))
    return joined.withColumn("_fate", fate).drop("_again")
