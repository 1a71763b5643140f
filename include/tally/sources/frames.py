"""A topic's valid events, as a stream has them, and which of them are copies of another."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructField

from tally.base.duration import millis
from tally.base.settings import settings
from tally.catalog.spec import Pipeline, Topic
from tally.sources.client import spark_options
from tally.sources.records.decode import decode

DAY = StructField("_date", DateType())  # the partition column of a table of windows

# Fewer, larger fetches: the consumer's defaults (500 records, 1 MiB) cost a third of the read on 2 cores.
FETCH = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(4 << 20)}
ARRIVAL = ("_broker_time", "_partition", "_offset")


def stream_frames(spark: SparkSession, pipeline: Pipeline) -> list[DataFrame]:
    """Unbounded frames of a pipeline's topics: decoded, refused records dropped."""
    limit = settings().max_offsets_per_trigger
    frames = []
    for topic in pipeline.reads:
        raw = (
            spark.readStream.format("kafka")
            .options(**spark_options(), **FETCH)
            .option("subscribe", topic.name)
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "true")
            .option("maxOffsetsPerTrigger", limit)
            .load()
        )
        decoded = decode(raw, topic).observe(observation(topic), *observed(topic))
        frames.append(decoded.where(F.col("_reason").isNull()).select(*topic.columns))
    return frames


def bounded_records(spark: SparkSession, topic: Topic, ranges: Mapping[int, tuple[int, int]]) -> DataFrame:
    """The records of half-open ranges of offsets, by partition, as Kafka has them."""
    wanted = {partition: bounds for partition, bounds in ranges.items() if bounds[0] < bounds[1]}

    def told(at: int) -> str:
        return json.dumps({topic.name: {str(partition): bounds[at] for partition, bounds in wanted.items()}})

    return (
        spark.read.format("kafka")
        .options(**spark_options(), **FETCH)
        # Of one group: consumers are kept from one micro-batch to the next. Nothing is ever committed to it.
        .option("kafka.group.id", f"tally-{topic.name}")
        .option("assign", json.dumps({topic.name: sorted(wanted)}))
        .option("startingOffsets", told(0))
        .option("endingOffsets", told(1))
        .option("failOnDataLoss", "true")
        .load()
    )


def observation(topic: Topic) -> str:
    """The name under which a stream's progress tells what a micro-batch held of a topic."""
    return f"tally_{topic.name}"


def observed(topic: Topic) -> list[Column]:
    """What a micro-batch held: records, refused ones, the newest broker time and event time in milliseconds."""
    valid = F.when(F.col("_reason").isNull(), F.unix_millis(topic.event_time))
    return [
        F.count(F.lit(1)).alias("records"),
        F.count("_reason").alias("refused"),
        F.max(F.unix_millis("_broker_time")).alias("newest_record"),
        F.max(valid).alias("newest_event"),
    ]


def copies(events: DataFrame, topic: Topic, newest: Column | None = None) -> DataFrame:
    """Each archived event whose unique id another one bears within the lateness, by place.

    `_later` says that another arrived before it, and so it is not counted; `_newest` is aggregated over all of them.
    """
    assert topic.unique
    span = millis(topic.lateness) * 1000
    several = events.groupBy(topic.unique).agg(F.count("*").alias("_times")).where("_times > 1").select(topic.unique)
    near = Window.partitionBy(topic.unique).orderBy(F.unix_micros(topic.event_time)).rangeBetween(-span, span)
    place = F.struct(*ARRIVAL)
    doubled = events.join(several, topic.unique, "left_semi")
    later = (F.min(place).over(near) < place).alias("_later")
    also = [] if newest is None else [newest.over(near).alias("_newest")]
    return doubled.select("_partition", "_offset", later, *also)


def without_duplicates(events: DataFrame, topic: Topic) -> DataFrame:
    """Each unique id once: its first arrival within the topic's lateness."""
    if not topic.unique:
        return events
    later = copies(events, topic).where("_later").select("_partition", "_offset")
    return events.join(later, ["_partition", "_offset"], "left_anti")


def partition_date(start: str = "window_start") -> Column:
    """What stands there: the day on which a window starts."""
    return F.to_date(start).alias("_date")
