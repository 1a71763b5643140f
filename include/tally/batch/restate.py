"""States a range of windows again from the archive, and replaces just those; doing so again gives the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tally import lake
from tally.batch import contradiction
from tally.batch.events import archive_versions, stated
from tally.batch.scope import scope
from tally.batch.touched import check_events, touched, wanted_of
from tally.catalog.duration import from_millis
from tally.catalog.ranges import Range, aligned, merge, overlap, without
from tally.catalog.spec import Pipeline
from tally.control import seals
from tally.engine import jvm_pid
from tally.failpoints import failpoint
from tally.settings import settings
from tally.sources import redecode
from tally.sources.archive import PROPERTIES
from tally.sources.frames import partition_date
from tally.sources.ranged import FEW, in_ranges, not_in_ranges
from tally.speed.commit import make_table
from tally.supervise import lock


@dataclass(frozen=True, kw_only=True)
class Restatement:
    """What the batch table holds: which windows were ever stated, from which archive commit of each topic."""

    covered: list[Range]
    stale: list[Range]  # of these, what events of later archive commits touch, and was not stated again
    through: dict[str, int]  # events of archive commits up to this one are stated wherever they fall, per topic
    seen: dict[str, int]  # what is stale was worked out up to this archive commit, per topic
    versions: dict[str, int]  # the archive's Delta version, per topic
    redecoded: dict[str, int]  # what was decoded again up to this version of it is stated wherever it falls, per topic
    ends: dict[str, dict[int, int]]  # the archive's end offsets, per topic
    ranges: list[Range]  # what this one replaced
    delta_version: int

    @property
    def followed(self) -> tuple[dict[str, int], dict[str, int]]:
        """The archive commits, and the versions decoded again, of which every touched window was stated."""
        return self.through, self.redecoded

    @property
    def current(self) -> list[Range]:
        """The windows that hold all that the archive held."""
        return without(self.covered, self.stale)


def path(pipeline: Pipeline) -> str:
    """The batch table of a pipeline's version."""
    return settings().table("batch", pipeline.name, pipeline.version)


def newest(pipeline: Pipeline) -> Restatement | None:
    """The newest restatement, from the batch table's own log; words of it that cannot be true are refused."""
    of_kind = (commit for commit in lake.commits(path(pipeline)) if commit.words.get("kind") == "restate")
    found = [from_words(commit.words, commit.version) for commit in islice(of_kind, 2)]
    if not found:
        return None
    contradiction.check(pipeline, found[0], found[1] if len(found) > 1 else None)
    return found[0]


def from_words(words: dict[str, Any], version: int) -> Restatement:
    return Restatement(
        covered=[(a, b) for a, b in words["covered"]],
        stale=[(a, b) for a, b in words["stale"]],
        through=words["through"],
        seen=words["seen"],
        versions=words["versions"],
        redecoded=words.get("redecoded", {}),
        ends={t: {int(p): o for p, o in parts.items()} for t, parts in words["ends"].items()},
        ranges=[(a, b) for a, b in words["ranges"]],
        delta_version=version,
    )


def restate(spark: SparkSession, pipeline: Pipeline, wanted: Range, *, only: bool = False) -> Restatement:
    """Replace the windows starting in the range, and older or stated ones that newly archived events touch.

    Idempotent: the rows follow from the archive alone, and one Delta commit replaces them (`replaceWhere`).
    """
    wanted = aligned(wanted, pipeline)
    with lock.table("batch", pipeline.name, pipeline.version, jvm=jvm_pid(spark)):
        for topic in pipeline.reads:
            redecode.ensure_current(spark, topic)
        commits = archive_versions(pipeline)
        versions = {name: commit.delta_version for name, commit in commits.items()}
        before = newest(pipeline)
        ranges, stale = [wanted], list[Range]()
        if not only:
            late = touched(spark, pipeline, commits, *(before.followed if before else ({}, {})))
            ranges += wanted_of(late, wanted[0], before.covered if before else [])
        found = scope(spark, pipeline, merge(ranges), versions)
        check_events(spark, pipeline, commits, found.ranges)
        if before and only:  # what stated windows it leaves behind that newly archived events belong in
            late = touched(spark, pipeline, commits, before.seen, before.versions)
            stale = without([*before.stale, *overlap(late, before.covered)], found.ranges)
        prepare_table(spark, pipeline)
        failpoint("restate.before_unseal")
        seals.unseal(pipeline.name, pipeline.version, merge([*found.ranges, *stale]))
        failpoint("restate.before_commit")
        seen = {name: commit.seq for name, commit in commits.items()}
        words = {
            "pipeline": pipeline.name,
            "version": pipeline.version,
            "ranges": found.ranges,
            "covered": merge([*(before.covered if before else []), *found.ranges]),
            "stale": stale,
            "through": (before.through if before else {}) if only else seen,
            "seen": seen,
            "versions": versions,
            "redecoded": (before.redecoded if before else {}) if only else versions,
            "ends": {name: {p: r[1] for p, r in commit.ranges.items()} for name, commit in commits.items()},
        }
        replace(found.rows, path(pipeline), found.ranges, lake.words("restate", **words))
        failpoint("restate.after_commit")
        done = newest(pipeline)
        assert done is not None
        return done


def prepare_table(spark: SparkSession, pipeline: Pipeline) -> None:
    shape = stated(spark, pipeline, [(0, 1)], dict.fromkeys(t.name for t in pipeline.reads))  # type: ignore[arg-type]
    empty = spark.createDataFrame([], shape.schema).withColumn("_date", partition_date())
    make_table(spark, path(pipeline), empty, PROPERTIES)


def replace(rows: DataFrame, where: str, ranges: Sequence[Range], words: str) -> None:
    """Put rows in the place of all that start in the ranges, in one commit.

    A commit's predicate names a few ranges. Where there are more, what lies between them is written again as it is.
    """
    few = merge(ranges, most=FEW)
    if len(few) < len(merge(ranges)):
        table = in_ranges(rows.sparkSession.read.format("delta").load(where), "window_start", few)
        rows = rows.unionByName(not_in_ranges(table.drop("_date"), "window_start", ranges))
    (
        rows.withColumn("_date", partition_date())
        .write.format("delta")
        .mode("overwrite")
        .option("replaceWhere", predicate(few))
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
