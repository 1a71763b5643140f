"""A topic's archived events in ranges of event time, as some ingest left the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import millis
from tally.base.errors import AnswerIsNo
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Pipeline, Topic
from tally.sources import archive
from tally.sources.frames import without_duplicates
from tally.sources.later_copies import later_copies
from tally.sources.ranged import in_ranges


@dataclass(frozen=True)
class Until:
    """The archive as an ingest left it, told by that ingest's number: of an old Delta version the files may be gone."""

    seq: int


# Places that each task holds in memory, some 60 bytes each; where there are more, Spark sorts.
MANY = 1_000_000
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


def events(spark: SparkSession, topic: Topic, ranges: Sequence[Range], version: int | Until | None) -> DataFrame:
    """A topic's archived events with event times in the ranges, duplicates dropped, with their places."""
    rows = archived(spark, topic, version)
    if not topic.unique:
        return in_ranges(rows, topic.event_time, ranges)
    until = version.seq if isinstance(version, Until) else None
    later = later_copies(topic, ranges, None if isinstance(version, Until) else version, until)
    if later is not None:
        return without(in_ranges(rows, topic.event_time, ranges), later)
    near = millis(topic.lateness)
    wide = in_ranges(rows, topic.event_time, merge((start - near, end + near) for start, end in ranges))
    return in_ranges(without_duplicates(wide, topic), topic.event_time, ranges)


def without(events: DataFrame, places: pa.Table) -> DataFrame:
    """The events but for those at these places."""
    if not places.num_rows:
        return events
    there = events.sparkSession.createDataFrame(places)
    return events.join(F.broadcast(there) if places.num_rows <= MANY else there, places.column_names, "left_anti")
