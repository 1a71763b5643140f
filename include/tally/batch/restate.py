"""States a range of windows again from the archive, and replaces just those; doing so again gives the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally import lake
from tally.batch.events import archive_versions, archived, stated
from tally.batch.scope import scope
from tally.catalog.duration import from_millis, millis
from tally.catalog.ranges import Range, aligned, merge, windows_of
from tally.catalog.spec import Pipeline
from tally.control import seals
from tally.failpoints import failpoint
from tally.settings import settings
from tally.sources.archive import PROPERTIES, Ingest, ingest
from tally.sources.frames import partition_date
from tally.speed.commit import make_table
from tally.supervise import lock

# A commit's predicate and metadata name each range; past so many the narrowest gaps are restated too.
MOST_RANGES = 64


@dataclass(frozen=True, kw_only=True)
class Restatement:
    """What the batch table holds: which windows were ever stated, from which archive commit of each topic."""

    covered: list[Range]
    through: dict[str, int]  # events of archive commits up to this one are stated, per topic
    versions: dict[str, int]  # the archive's Delta version, per topic
    ends: dict[str, dict[int, int]]  # the archive's end offsets, per topic
    ranges: list[Range]  # what this one replaced
    delta_version: int


def path(pipeline: Pipeline) -> str:
    """The batch table of a pipeline's version."""
    return settings().table("batch", pipeline.name, pipeline.version)


def newest(pipeline: Pipeline) -> Restatement | None:
    """The newest restatement, from the batch table's own log."""
    commit = lake.newest(path(pipeline), "restate")
    return from_words(commit.words, commit.version) if commit else None


def from_words(words: dict[str, Any], version: int) -> Restatement:
    return Restatement(
        covered=[(a, b) for a, b in words["covered"]],
        through=words["through"],
        versions=words["versions"],
        ends={t: {int(p): o for p, o in parts.items()} for t, parts in words["ends"].items()},
        ranges=[(a, b) for a, b in words["ranges"]],
        delta_version=version,
    )


def run(spark: SparkSession, pipeline: Pipeline, wanted: Range, *, only: bool = False) -> Restatement:
    """Ingest what is new, then restate the range and (unless `only`) what late events touched outside it."""
    for topic in pipeline.reads:
        ingest(spark, topic)
    return restate(spark, pipeline, wanted, only=only)


def restate(spark: SparkSession, pipeline: Pipeline, wanted: Range, *, only: bool = False) -> Restatement:
    """Replace the windows starting in the range, and older or stated ones that newly archived events touch.

    Idempotent: the rows follow from the archive alone, and one Delta commit replaces them (`replaceWhere`).
    """
    wanted = aligned(wanted, pipeline)
    with lock.table("batch", pipeline.name, pipeline.version):
        commits = archive_versions(pipeline)
        versions = {name: commit.delta_version for name, commit in commits.items()}
        before = newest(pipeline)
        ranges = [wanted] if only else [wanted, *touched(spark, pipeline, wanted, before, commits)]
        found = scope(spark, pipeline, merge(ranges, most=MOST_RANGES), versions)
        prepare_table(spark, pipeline)
        seals.unseal(pipeline.name, pipeline.version, found.ranges)
        failpoint("restate.before_commit")
        through = (before.through if before else {}) if only else {n: c.seq for n, c in commits.items()}
        words = {
            "pipeline": pipeline.name,
            "version": pipeline.version,
            "ranges": found.ranges,
            "covered": merge([*(before.covered if before else []), *found.ranges]),
            "through": through,
            "versions": versions,
            "ends": {name: {p: r[1] for p, r in commit.ranges.items()} for name, commit in commits.items()},
        }
        replace(found.rows, path(pipeline), found.ranges, lake.words("restate", **words))
        failpoint("restate.after_commit")
        done = newest(pipeline)
        assert done is not None
        return done


def touched(
    spark: SparkSession, pipeline: Pipeline, wanted: Range, before: Restatement | None, commits: dict[str, Ingest]
) -> list[Range]:
    """Windows outside the range that events archived since the last restatement are part of."""
    step = millis(pipeline.window.step)
    found: list[Range] = []
    for at, topic in enumerate(pipeline.reads):
        since = before.through.get(topic.name, -1) if before else -1
        if since >= commits[topic.name].seq:
            continue
        time = F.unix_millis(topic.event_time)
        cell = (time - F.pmod(time, F.lit(step))).alias("cell")
        new = archived(spark, topic, commits[topic.name].delta_version).where(F.col("_ingest") > since)
        cells = [row["cell"] for row in new.select(cell).distinct().collect()]
        found += [windows_of((c, c + step), pipeline, first=at == 0) for c in cells]
    covered = before.covered if before else []
    return [piece for start, end in merge(found) for piece in pieces((start, end), wanted[0], covered)]


def pieces(found: Range, older_than: int, covered: Sequence[Range]) -> list[Range]:
    """What of a range is older than an instant or was stated before: the rest waits for its own interval."""
    older = [(found[0], min(found[1], older_than))]
    known = [(max(found[0], a), min(found[1], b)) for a, b in covered]
    return merge([*older, *known])


def prepare_table(spark: SparkSession, pipeline: Pipeline) -> None:
    shape = stated(spark, pipeline, [(0, 1)], dict.fromkeys(t.name for t in pipeline.reads))  # type: ignore[arg-type]
    empty = spark.createDataFrame([], shape.schema).withColumn("_date", partition_date())
    make_table(spark, path(pipeline), empty, PROPERTIES)


def replace(rows: DataFrame, where: str, ranges: Sequence[Range], words: str) -> None:
    """Put rows in the place of all that start in the ranges, in one commit."""
    (
        rows.withColumn("_date", partition_date())
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", predicate(ranges))
        .option("userMetadata", words)
        .save(where)
    )


def predicate(ranges: Sequence[Range]) -> str:
    def one(start: int, end: int) -> str:
        first, last = from_millis(start), from_millis(end)
        days = f"_date >= DATE'{first.date()}' AND _date <= DATE'{from_millis(end - 1).date()}'"
        return f"({days} AND window_start >= TIMESTAMP'{text(first)}' AND window_start < TIMESTAMP'{text(last)}')"

    def text(moment: Any) -> str:
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}+00:00"

    return " OR ".join(one(start, end) for start, end in ranges)
