"""What the engine hands to a pipeline's function, in either layer, and the one form of what comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from tally.catalog.duration import millis, spark_interval
from tally.catalog.spec import Pipeline, Topic
from tally.errors import DefinitionError
from tally.settings import settings
from tally.sources.client import spark_options
from tally.sources.decode import decode

# Fewer, larger fetches: the consumer's defaults (500 records, 1 MiB) cost a third of the read on 2 cores.
FETCH = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(4 << 20)}
ARRIVAL = ("_broker_time", "_partition", "_offset")


def stream_frames(spark: SparkSession, pipeline: Pipeline) -> list[DataFrame]:
    """Unbounded frames of a pipeline's topics: decoded, refused records dropped, watermark set, duplicates dropped."""
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
    return as_given(frames, pipeline)


def as_given(valid: Sequence[DataFrame], pipeline: Pipeline) -> list[DataFrame]:
    """Unbounded frames of valid events as a function gets them: watermark set, each id once, the window marked."""
    frames = []
    for at, (frame, topic) in enumerate(zip(valid, pipeline.reads, strict=True)):
        timed = frame.withWatermark(topic.event_time, spark_interval(topic.lateness))
        if topic.unique:
            timed = timed.dropDuplicatesWithinWatermark([topic.unique])
        frames.append(timed if at else with_window(timed, pipeline))
    if len(frames) > 1:
        # A join takes one event-time column a side: the window is a plain value there, and is marked again above it.
        frames[0] = frames[0].withColumn("window", F.col("window").alias("window", metadata={}))
    return frames


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


@contextmanager
def window_above_joins(pipeline: Pipeline) -> Iterator[None]:
    """While a function runs over streams, `groupBy("window")` above a join groups by the window as an event time.

    Without that mark Spark would keep the state of every window for ever.
    """
    kind: Any = ClassicFrame
    plain, time = kind.groupBy, pipeline.reads[0].event_time

    def group_by(frame: DataFrame, *columns: Any) -> Any:
        if columns and "window" in columns and frame.columns.count(time) == 1:
            frame = with_window(frame, pipeline)
        return plain(frame, *columns)

    if len(pipeline.reads) > 1:
        kind.groupBy = kind.groupby = group_by
    try:
        yield
    finally:
        kind.groupBy = kind.groupby = plain


def streamed(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The pipeline's rows as an unbounded frame."""
    return applied_to_stream(pipeline, stream_frames(spark, pipeline))


def applied_to_stream(pipeline: Pipeline, frames: Sequence[DataFrame]) -> DataFrame:
    """The function's rows over unbounded frames as `as_given` makes them."""
    with window_above_joins(pipeline):
        return flatten(pipeline.function(*frames), pipeline)


def with_window(frame: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The frame of the first topic with its `window` column; a hopping window gives a row for each window."""
    time, window = pipeline.reads[0].event_time, pipeline.window
    if window.kind == "session":
        return frame.withColumn("window", F.session_window(time, spark_interval(window.size)))
    if window.kind == "hopping":
        return frame.withColumn("window", F.window(time, spark_interval(window.size), spark_interval(window.slide)))
    return frame.withColumn("window", F.window(time, spark_interval(window.size)))


def copies(events: DataFrame, topic: Topic, newest: Column | None = None) -> DataFrame:
    """Each archived event whose unique id another one bears within the lateness, by place.

    `_later` says that another arrived before it, and so it is not counted; `_newest` is aggregated over all of them.
    """
    assert topic.unique
    span = millis(topic.lateness) * 1000
    several = events.groupBy(topic.unique).count().where("count > 1").select(topic.unique)
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


def flatten(out: DataFrame, pipeline: Pipeline) -> DataFrame:
    """window_start, window_end, the key, then the measures: the form of every speed and batch row."""
    check_output(out, pipeline)
    measures = [name for name in out.columns if name not in ("window", *pipeline.key)]
    bounds: tuple[Column, ...] = (F.col("window.start"), F.col("window.end"))
    if pipeline.window.kind == "session":
        # Spark pushes a filter on a session's bounds below its aggregation, where it cuts off events and chooses no
        # sessions. A generator in between stops that.
        bounds = (F.inline(F.array(F.struct(*bounds))).alias("window_start", "window_end"),)
    else:
        bounds = (bounds[0].alias("window_start"), bounds[1].alias("window_end"))
    return out.select(*bounds, *pipeline.key, *measures)


def check_output(out: object, pipeline: Pipeline) -> None:
    """Refuse an output that breaks the declaration."""

    def refuse(message: str, field: str, cure: str) -> None:
        raise DefinitionError(message, pipeline=pipeline.name, field=field, cure=cure, where=pipeline.where)

    if not hasattr(out, "columns"):
        refuse(f"the function gives {type(out).__name__}", "function", "return a DataFrame")
    names = list(out.columns)  # type: ignore[attr-defined]
    if "window" not in names:
        refuse("the output has no `window` column", "window", 'group by "window", or keep it in the select')
    for key in pipeline.key:
        if key not in names:
            refuse(f"the output lacks {key!r}; it has {', '.join(names)}", "key", "group by it, or correct key=")
    for name in names:
        if names.count(name) > 1:
            refuse(f"the output has {name!r} twice", "function", "rename one with .alias()")
        if name.startswith("_") or name in ("window_start", "window_end", "state", "revision"):
            refuse(f"{name!r} is a name Tally uses itself", "function", "rename the column with .alias()")


def partition_date(start: str = "window_start") -> Column:
    """The partition column of a table of windows."""
    return F.to_date(start).alias("_date")
