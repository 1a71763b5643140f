"""States a range of windows again from the archive, and replaces just those; doing so again gives the same table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tally.base.duration import from_millis
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.batch.restatement import Restatement, check_words, from_words
from tally.batch.touched import check_events, touched, wanted_of
from tally.catalog.ranges import Range, aligned, merge, overlap, without
from tally.catalog.spec import Pipeline
from tally.control import seals
from tally.host import lock
from tally.kinds import kind_of
from tally.kinds.frames import called
from tally.lake import delta, tables
from tally.lake.session import jvm_pid
from tally.sources import redecode
from tally.sources.archive import PROPERTIES
from tally.sources.archived import archive_versions
from tally.sources.frames import DAY, partition_date
from tally.sources.ranged import FEW, in_ranges, not_in_ranges


def path(pipeline: Pipeline) -> str:
    """The batch table of a pipeline's version."""
    return settings().table("batch", pipeline.name, pipeline.version)


def newest(pipeline: Pipeline) -> Restatement | None:
    """The newest restatement, from the batch table's own log; words of it that cannot be true are refused."""
    of_kind = (commit for commit in delta.commits(path(pipeline)) if commit.words.get("kind") == "restate")
    found = [from_words(commit.words, commit.version) for commit in islice(of_kind, 2)]
    if not found:
        return None
    check_words(pipeline, found[0], found[1] if len(found) > 1 else None)
    return found[0]


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
        ranges, stale, left = [wanted], list[Range](), before.left if before else []
        if not only:
            late = touched(spark, pipeline, commits, *(before.followed if before else ({}, {})))
            left = merge([*left, *late])
            ranges += wanted_of(left, wanted[0], before.covered if before else [])
        found = kind_of(pipeline).scope(spark, merge(ranges), versions)
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
            "left": without(left, found.ranges),
            "through": (before.through if before else {}) if only else seen,
            "seen": seen,
            "versions": versions,
            "redecoded": (before.redecoded if before else {}) if only else versions,
            "ends": {name: {p: r[1] for p, r in commit.ranges.items()} for name, commit in commits.items()},
        }
        replace(found.rows, path(pipeline), found.ranges, delta.words("restate", **words))
        failpoint("restate.after_commit")
        done = newest(pipeline)
        assert done is not None
        return done


def prepare_table(spark: SparkSession, pipeline: Pipeline) -> None:
    kind = kind_of(pipeline)
    rows = kind.flattened(called(pipeline, kind.empty(spark))).schema
    tables.make_table(spark, path(pipeline), StructType([*rows.fields, DAY]), PROPERTIES)


def replace(rows: DataFrame, where: str, ranges: Sequence[Range], words: str) -> None:
    """Put rows in the place of all that start in the ranges, in one commit.

    A commit's predicate names a few ranges. Where there are more, what lies between them is written again as it is.
    """
    few = merge(ranges, most=FEW)
    if len(few) < len(merge(ranges)):
        table = in_ranges(rows.sparkSession.read.format("delta").load(where), "window_start", few)
        rows = rows.unionByName(not_in_ranges(table.drop("_date"), "window_start", ranges))
    tables.replace(rows.withColumn("_date", partition_date()), where, words, only=predicate(few))


def predicate(ranges: Sequence[Range]) -> str:
    def one(start: int, end: int) -> str:
        first, last = from_millis(start), from_millis(end)
        days = f"_date >= DATE'{first.date()}' AND _date <= DATE'{from_millis(end - 1).date()}'"
        return f"({days} AND window_start >= TIMESTAMP'{text(first)}' AND window_start < TIMESTAMP'{text(last)}')"

    def text(moment: Any) -> str:
        return f"{moment:%Y-%m-%d %H:%M:%S.%f}+00:00"

    return " OR ".join(one(start, end) for start, end in ranges)
