"""What the stream must have put out for ranges of windows, worked out from the archive and the ledger alone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline, Topic
from tally.kinds import kind_of
from tally.kinds.fates import accepted
from tally.kinds.frames import called
from tally.reconcile.cut import Cut, Offsets
from tally.reconcile.replay import copies, fate
from tally.reconcile.replay.filtered import with_filtered
from tally.reconcile.rows.hashes import row_hash
from tally.sources.archived import archived
from tally.sources.ranged import in_ranges


def events_near(spark: SparkSession, cut: Cut, topic: Topic, ranges: Sequence[Range]) -> DataFrame:
    """A topic's archived events in ranges of event time, with all those that decide what becomes of them."""
    rows = archived(spark, topic, cut.stated.versions[topic.name])
    return in_ranges(rows, topic.event_time, copies.around(cut, topic, ranges))


def first_offsets(cut: Cut, ranges: Sequence[Sequence[Range]]) -> Offsets:
    """The lowest offset of each partition of each topic among the events that a comparison looks at."""
    found: Offsets = {}
    for topic, wanted in zip(cut.pipeline.reads, ranges, strict=True):
        lowest = found.setdefault(topic.name, {})
        for rows in copies.places(cut, topic, copies.around(cut, topic, wanted)):
            for row in pa.Table.from_batches([rows]).group_by("_partition").aggregate([("_offset", "min")]).to_pylist():
                partition, offset = row["_partition"], row["_offset_min"]
                lowest[partition] = min(offset, lowest.get(partition, offset))
    return found


def tagged_events(spark: SparkSession, cut: Cut, topic: Topic, ranges: Sequence[Range]) -> DataFrame:
    """A topic's archived events in ranges of event time, each with its fate."""
    wide = events_near(spark, cut, topic, ranges)
    tagged = in_ranges(fate.with_fate(wide, topic, cut), topic.event_time, ranges)
    tagged = tagged.withColumn("_differs", F.lit(True))
    return with_filtered(tagged, cut.pipeline) if cut.filters else tagged.withColumn("_filtered", F.lit(False))


def differing_keys(batch: DataFrame, stream: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The keys of which the layers' rows differ anywhere, as `_key_<name>`."""
    key = [F.col(name).alias(f"_key_{name}") for name in pipeline.key]
    signed = [rows.select(*key, (row_hash(rows) * sign).alias("_h"), F.lit(sign).alias("_n"))
              for rows, sign in ((batch, 1), (stream, -1))]  # fmt: skip
    sums = signed[0].unionByName(signed[1]).groupBy(*(f"_key_{name}" for name in pipeline.key))
    differing = sums.agg(F.sum("_h").alias("_h"), F.sum("_n").alias("_n")).where("_h <> 0 OR _n <> 0")
    return differing.drop("_h", "_n")


def replayed(cut: Cut, frames: Sequence[DataFrame], ranges: Sequence[Range]) -> DataFrame:
    """The rows that the function gives for the events that the stream accepted, window by window."""
    kind = kind_of(cut.pipeline)
    given = kind.replayed([accepted(frame) for frame in frames], cut.history)
    return in_ranges(kind.flattened(called(cut.pipeline, given)), "window_start", ranges)


def restated(cut: Cut, frames: Sequence[DataFrame], ranges: Sequence[Range]) -> DataFrame:
    """The rows that the function gives for the events that the batch counts: what its table must hold."""
    counted = [frame.where("_counted") for frame in frames]
    return in_ranges(kind_of(cut.pipeline).applied(counted), "window_start", ranges)
