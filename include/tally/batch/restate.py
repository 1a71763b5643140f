"""States a range of windows again from the archive, and replaces just those; doing so again gives the same table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally import lake
from tally.batch import contradiction
from tally.batch.events import archive_versions, archived, stated
from tally.batch.scope import scope, session_scope
from tally.catalog.duration import from_millis, millis
from tally.catalog.ranges import Range, aligned, events_of, merge, overlap, windows_of, without
from tally.catalog.spec import Pipeline, Topic
from tally.control import seals
from tally.engine import jvm_pid
from tally.failpoints import failpoint
from tally.settings import settings
from tally.sources import manifest, redecode
from tally.sources.archive import PROPERTIES, Ingest
from tally.sources.frames import partition_date
from tally.sources.ingest import ingest
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
    with lock.table("batch", pipeline.name, pipeline.version, jvm=jvm_pid(spark)):
        for topic in pipeline.reads:
            redecode.ensure_current(spark, topic)
        commits = archive_versions(pipeline)
        versions = {name: commit.delta_version for name, commit in commits.items()}
        before = newest(pipeline)
        ranges = [wanted]
        if not only:
            late = touched(spark, pipeline, before.through if before else {}, commits)
            late += redecoded(pipeline, before.redecoded if before else {})
            ranges += wanted_of(late, wanted[0], before.covered if before else [])
        found = scope(spark, pipeline, merge(ranges), versions)
        check_events(spark, pipeline, commits, found.ranges)
        stale = still_stale(spark, pipeline, before, commits, found.ranges) if before and only else []
        prepare_table(spark, pipeline)
        failpoint("restate.before_unseal")
        seals.unseal(pipeline.name, pipeline.version, found.ranges)
        failpoint("restate.before_commit")
        seen = {name: commit.seq for name, commit in commits.items()}
        words = {
            "pipeline": pipeline.name,
            "version": pipeline.version,
            "ranges": found.ranges,
            "covered": merge([*(before.covered if before else []), *found.ranges]),
            "stale": without(stale, found.ranges),
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


def touched(spark: SparkSession, pipeline: Pipeline, known: dict[str, int], commits: dict[str, Ingest]) -> list[Range]:
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


def redecoded(pipeline: Pipeline, known: dict[str, int]) -> list[Range]:
    """The windows whose events were decoded again, under another contract, after these versions of the archives."""
    return merge(
        windows_of(changed, pipeline, first=at == 0)
        for at, topic in enumerate(pipeline.reads)
        if topic.name in known
        for changed in redecode.changed_since(topic, known[topic.name])
    )


def check_events(spark: SparkSession, pipeline: Pipeline, commits: dict[str, Ingest], ranges: Sequence[Range]) -> None:
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
    manifest.check(
        spark, topic, ranges, version=last.delta_version, seq=last.seq, since=since, places=["archive"],
        pipeline=pipeline.name,
    )  # fmt: skip


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
    """What of the ranges is older than an instant or was stated before: the rest waits for its own interval."""
    return [*((start, min(end, older_than)) for start, end in late), *overlap(late, covered)]


def still_stale(
    spark: SparkSession, pipeline: Pipeline, before: Restatement, commits: dict[str, Ingest], restated: Sequence[Range]
) -> list[Range]:
    """What a restatement of just these ranges leaves behind: stated windows that newly archived events belong in."""
    late = [*touched(spark, pipeline, before.seen, commits), *redecoded(pipeline, before.versions)]
    late = overlap(late, before.covered)
    if pipeline.window.kind == "session":
        versions = {name: commit.delta_version for name, commit in commits.items()}
        late, _ = session_scope(spark, pipeline, late, versions)
    return without([*before.stale, *late], restated)


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
