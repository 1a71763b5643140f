"""How far a restatement must go, so that what it replaces is whole: sessions that cross an edge are taken in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.batch.events import Versions, applied, archived, events, starting_in, stated
from tally.catalog.duration import millis
from tally.catalog.ranges import Range, ceil, floor, merge
from tally.catalog.spec import Pipeline

# Sessions are first looked for so many gaps around the range; it doubles until every one found is whole.
FIRST_GAPS = 8


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The window starts that are restated, and their rows."""

    ranges: list[Range]
    rows: DataFrame


def scope(spark: SparkSession, pipeline: Pipeline, ranges: Sequence[Range], versions: Versions) -> Scope:
    """The rows of all windows starting in the ranges; sessions widen the ranges to where theirs begin and end."""
    if pipeline.window.kind != "session":
        return Scope(ranges=merge(ranges), rows=stated(spark, pipeline, ranges, versions))
    widened, read = [], []
    for wanted in merge(ranges):
        starts, around = session_scope(spark, pipeline, wanted, versions)
        widened.append(starts)
        read.append(around)
    rows = sessions(spark, pipeline, merge(read), versions)
    return Scope(ranges=merge(widened), rows=starting_in(rows, merge(widened)))


def sessions(spark: SparkSession, pipeline: Pipeline, around: Sequence[Range], versions: Versions) -> DataFrame:
    topic = pipeline.reads[0]
    return applied(pipeline, [events(spark, topic, around, versions[topic.name])])


def session_scope(spark: SparkSession, pipeline: Pipeline, wanted: Range, versions: Versions) -> tuple[Range, Range]:
    """(starts, events): the starts of every session that meets the range, and the events that hold these whole."""
    gap = millis(pipeline.window.size)
    oldest, newest = extent(spark, pipeline, versions)
    reach = FIRST_GAPS * gap
    left, right = wanted[0] - reach, wanted[1] + reach
    while True:
        rows = sessions(spark, pipeline, [(left, right)], versions)
        start, end = F.unix_millis("window_start"), F.unix_millis("window_end")
        met = rows.where((start < wanted[1]) & (end > wanted[0])).agg(F.min(start), F.max(end)).first()
        first, last = (met[0], met[1]) if met is not None and met[0] is not None else wanted
        starts = floor(min(first, wanted[0]), gap), ceil(max(last, wanted[1]), gap)
        inside = rows.where((start >= starts[0]) & (start < starts[1])).agg(F.max(end)).first()
        ends = inside[0] if inside is not None and inside[0] is not None else starts[1]
        # Whole on the left: no event may hide less than a gap before; on the right: none may follow the last.
        short_left = starts[0] - gap < left and left > oldest
        short_right = max(ends, starts[1] + gap) > right and right <= newest
        if not short_left and not short_right:
            return starts, (left, right)
        reach *= 2
        left, right = (left - reach if short_left else left), (right + reach if short_right else right)


def extent(spark: SparkSession, pipeline: Pipeline, versions: Versions) -> Range:
    """The oldest and newest event time in the archive."""
    topic = pipeline.reads[0]
    time = F.unix_millis(topic.event_time)
    found = archived(spark, topic, versions[topic.name]).agg(F.min(time), F.max(time)).first()
    return (found[0], found[1]) if found is not None and found[0] is not None else (0, 0)
