"""The archive's events for ranges of windows, as the frames that a pipeline's function takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.duration import millis
from tally.catalog.ranges import Range, events_of, merge
from tally.catalog.spec import Pipeline, Topic
from tally.errors import AnswerIsNo
from tally.sources import archive
from tally.sources.frames import flatten, with_window, without_duplicates
from tally.sources.ranged import in_ranges


@dataclass(frozen=True)
class Until:
    """The archive as an ingest left it, told by that ingest's number: of an old Delta version the files may be gone."""

    seq: int


Versions = Mapping[str, int | Until]


def archived(spark: SparkSession, topic: Topic, version: int | Until | None = None) -> DataFrame:
    """The archive of a topic as of one Delta version or one ingest."""
    reader = spark.read.format("delta")
    if isinstance(version, Until):
        return reader.load(archive.path(topic)).where(F.col("_ingest") <= version.seq)
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(archive.path(topic))


def archive_versions(pipeline: Pipeline) -> dict[str, archive.Ingest]:
    """The newest archive commit of each topic that the pipeline reads."""
    found = {topic.name: archive.progress(topic) for topic in pipeline.reads}
    for name, commit in found.items():
        if commit is None:
            raise AnswerIsNo(
                f"the archive of {name} is empty", pipeline=pipeline.name, cure="produce events, then run it again"
            )
    return {name: commit for name, commit in found.items() if commit is not None}


def events(
    spark: SparkSession, topic: Topic, ranges: Sequence[Range], version: int | Until | None, *, unique: bool = True
) -> DataFrame:
    """A topic's archived events with event times in the ranges, duplicates dropped, with their places."""
    if not (unique and topic.unique):
        return in_ranges(archived(spark, topic, version), topic.event_time, ranges)
    near = millis(topic.lateness)
    around = merge((start - near, end + near) for start, end in ranges)
    wide = in_ranges(archived(spark, topic, version), topic.event_time, around)
    return in_ranges(without_duplicates(wide, topic), topic.event_time, ranges)


def stated(spark: SparkSession, pipeline: Pipeline, ranges: Sequence[Range], versions: Versions) -> DataFrame:
    """The pipeline's rows for windows whose start lies in the ranges, from the archive (no sessions: see scope)."""
    frames = []
    for at, topic in enumerate(pipeline.reads):
        wanted = merge(events_of(r, pipeline, first=at == 0) for r in ranges)
        frames.append(events(spark, topic, wanted, versions[topic.name]))
    return in_ranges(applied(pipeline, frames), "window_start", ranges)


def applied(pipeline: Pipeline, frames: Sequence[DataFrame]) -> DataFrame:
    """The function's rows over bounded frames; it sees the topics' own columns and `window` only."""
    bare = [frame.select(*topic.columns) for frame, topic in zip(frames, pipeline.reads, strict=True)]
    return flatten(pipeline.function(with_window(bare[0], pipeline), *bare[1:]), pipeline)
