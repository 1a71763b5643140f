"""What the kinds' frames have in common: event times with their watermark, and the one form of what comes back."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.base.duration import spark_interval
from tally.base.errors import DefinitionError
from tally.catalog.spec import Pipeline, Topic
from tally.lake.lines import lines_told

# How Spark marks a column as an event time: with the watermark's delay.
MARK = "spark.watermarkDelayMs"


def called(pipeline: Pipeline, frames: Sequence[DataFrame]) -> DataFrame:
    """What the author's function makes of frames; Spark knows the lines that it is made at."""
    with lines_told():
        out: DataFrame = pipeline.function(*frames)
        return out


def timed(frame: DataFrame, topic: Topic) -> DataFrame:
    """Unbounded events with their watermark, each id once."""
    marked = frame.withWatermark(topic.event_time, spark_interval(topic.lateness))
    return marked.dropDuplicatesWithinWatermark([topic.unique]) if topic.unique else marked


def unmarked(frame: DataFrame, *names: str) -> DataFrame:
    """The frame with these columns as plain values: event times no more."""
    return frame.withColumns({name: F.col(name).alias(name, metadata={}) for name in names})


def bare(frames: Sequence[DataFrame], pipeline: Pipeline) -> list[DataFrame]:
    """Frames with the topics' own columns only, and with the window of the first one's."""
    added = [["window"], *([] for _ in frames[1:])]
    return [
        frame.select(*topic.columns, *more) for frame, topic, more in zip(frames, pipeline.reads, added, strict=True)
    ]


def flatten(out: DataFrame, pipeline: Pipeline, *bounds: Column) -> DataFrame:
    """window_start, window_end, the key, then the measures: the form of every speed and batch row."""
    check_output(out, pipeline)
    measures = [name for name in out.columns if name not in ("window", *pipeline.key)]
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
    plain = [name.lower() for name in names]  # Spark and DuckDB take names in either case for the same
    for name in names:
        if plain.count(name.lower()) > 1:
            refuse(f"the output has {name!r} twice", "function", "rename one with .alias()")
        if name.startswith("_") or name.lower() in ("window_start", "window_end", "state", "revision"):
            refuse(f"{name!r} is a name Tally uses itself", "function", "rename the column with .alias()")
        if not name.isidentifier():
            refuse(f"{name!r} cannot name a table's column", "function", "name it with .alias(): letters, digits and _")
