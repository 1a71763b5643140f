"""Which windows newly archived events touch: those that they are part of, or take an event from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import millis
from tally.catalog.ranges import Range, events_of, merge, overlap, windows_of
from tally.catalog.spec import Pipeline, Topic
from tally.kinds import kind_of
from tally.sources import redecode
from tally.sources.archive import Ingest
from tally.sources.archived import archived
from tally.sources.ranged import in_ranges
from tally.sources.witnesses import verification


def touched(
    spark: SparkSession, pipeline: Pipeline, commits: Mapping[str, Ingest], known: Mapping[str, int],
    decoded: Mapping[str, int],
) -> list[Range]:  # fmt: skip
    """The windows that later archive commits than those known touch, or what was decoded again since these versions."""
    late = merge([*by_arrival(spark, pipeline, commits, known), *redecoded(pipeline, decoded)])
    versions = {name: commit.delta_version for name, commit in commits.items()}
    return kind_of(pipeline).touched(spark, late, versions)


def by_arrival(
    spark: SparkSession, pipeline: Pipeline, commits: Mapping[str, Ingest], known: Mapping[str, int]
) -> list[Range]:
    """The windows that the events of later archive commits than those known are part of, or take an event from.

    A new copy of an id may have arrived before the one that was counted: the window of that one is stated again too.
    """
    step = millis(pipeline.window.step)
    found: list[Range] = []
    for at, topic in enumerate(pipeline.reads):
        since = known.get(topic.name, -1)
        last = commits[topic.name]
        if since >= last.seq:
            continue
        check(spark, pipeline, topic, last, since=since)
        archive = archived(spark, topic, last.delta_version)
        new = archive.where(F.col("_ingest") > since)
        cells = cells_of(new, topic, step)
        if topic.unique and since >= 0:
            cells += cells_of(copies_of(new, archive.where(F.col("_ingest") <= since), topic, cells, step), topic, step)
        found += [windows_of((c, c + step), pipeline, first=at == 0) for c in cells]
    return merge(found)


def redecoded(pipeline: Pipeline, known: Mapping[str, int]) -> list[Range]:
    """The windows whose events were decoded again, under another contract, after these versions of the archives."""
    return merge(
        windows_of(changed, pipeline, first=at == 0)
        for at, topic in enumerate(pipeline.reads)
        if topic.name in known
        for changed in redecode.changed_since(topic, known[topic.name])
    )


def check_events(
    spark: SparkSession, pipeline: Pipeline, commits: Mapping[str, Ingest], ranges: Sequence[Range]
) -> None:
    """Refuse to state windows whose events, or what may be copies of them, are not as they were archived."""
    for at, topic in enumerate(pipeline.reads):
        near = millis(topic.lateness)
        around = [(a - near, b + near) for a, b in (events_of(r, pipeline, first=at == 0) for r in ranges)]
        check(spark, pipeline, topic, commits[topic.name], around)


def check(
    spark: SparkSession,
    pipeline: Pipeline,
    topic: Topic,
    last: Ingest,
    ranges: Sequence[Range] | None = None,
    *,
    since: int = -1,
) -> None:
    """Hold what is read of the archive against its manifests: event times in the ranges, ingests since one."""
    extent = verification.Extent(
        topic=topic, ranges=ranges, version=last.delta_version, seq=last.seq, since=since, places=["archive"]
    )
    verification.check(spark, extent, pipeline.name)


def cells_of(events: DataFrame, topic: Topic, step: int) -> list[int]:
    """The cells of the grid of windows that events lie in."""
    time = F.unix_millis(topic.event_time)
    cell = (time - F.pmod(time, F.lit(step))).alias("cell")
    return [row["cell"] for row in events.select(cell).distinct().collect()]


def copies_of(new: DataFrame, old: DataFrame, topic: Topic, cells: Sequence[int], step: int) -> DataFrame:
    """The old events that have a copy among the new ones, which lie in these cells, within the lateness."""
    assert topic.unique
    near = millis(topic.lateness)
    around = in_ranges(old, topic.event_time, merge((c - near, c + step + near) for c in cells))
    theirs = new.select(F.col(topic.unique).alias("_copy"), F.unix_micros(topic.event_time).alias("_copy_time"))
    apart = F.abs(F.unix_micros(topic.event_time) - F.col("_copy_time"))
    return around.join(theirs, (F.col(topic.unique) == F.col("_copy")) & (apart <= near * 1000), "left_semi")


def wanted_of(late: Sequence[Range], older_than: int, covered: Sequence[Range]) -> list[Range]:
    """What of the ranges is older than an instant or was stated before: the rest is left to its own interval."""
    return [*((start, min(end, older_than)) for start, end in late), *overlap(late, covered)]
