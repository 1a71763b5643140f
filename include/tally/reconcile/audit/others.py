"""What others changed in a batch table, by the commits of its log that restate nothing: it is audited first."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import takewhile

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.base.duration import parse_instant, to_millis
from tally.base.failpoints import failpoint
from tally.batch import restate
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Pipeline
from tally.control import audits, seals
from tally.lake import delta
from tally.reconcile.audit import checks, doubted, kept

FILE = "STRUCT<path: STRING, partitionValues: MAP<STRING, STRING>, dataChange: BOOLEAN>"
EVER: list[Range] = [(-(1 << 60), 1 << 60)]
DAY = re.compile(r"_date=(\d{4}-\d\d-\d\d)/")


def audit_changed(spark: Callable[[], SparkSession], pipeline: Pipeline) -> list[Range]:
    """Audit the windows of the days on which others changed the batch table since the last look; those now held.

    It counts what is kept of the topics, too: a comparison comes more often than an audit. Spark is started where
    others did change it.
    """
    kept.check(pipeline)
    path, number = restate.path(pipeline), (pipeline.name, pipeline.version)
    seen, now = audits.place(*number).seen_version, delta.version(path)
    if now == seen:
        return []
    known = seals.meeting(*number, days(spark, path, seen, now))
    # The seals first, then the table: rows that were restated in between are no longer those that a seal stands for.
    faults = checks.of_table(spark(), pipeline, known, delta.version(path)) if known else {}
    held = doubted.hold(pipeline, faults)
    failpoint("audit.before_seen")
    audits.went_on(*number, seen_version=now)
    return merge((seal.slot_start, seal.slot_end) for seal in held)


def days(spark: Callable[[], SparkSession], path: str, seen: int, now: int) -> list[Range]:
    """The days whose rows others' commits after one version changed, up to another; EVER where nobody can tell.

    OPTIMIZE and VACUUM change no rows, and Delta says so of each file. A log that was cleaned, or a table that was put
    back, tells nothing.
    """
    if now < seen:
        return EVER
    commits = list(takewhile(lambda commit: commit.version > seen, delta.commits(path)))
    if len(commits) < now - seen:
        return EVER
    others = [commit.version for commit in commits if commit.words.get("kind") != "restate"]
    return changed(spark(), path, others) if others else []


def changed(spark: SparkSession, path: str, versions: list[int]) -> list[Range]:
    """The days of the files that these log entries add or remove with a change of data."""
    entries = [f"{path}/_delta_log/{version:020d}.json" for version in versions]
    try:
        actions = spark.read.schema(f"add {FILE}, remove {FILE}").json(entries)
        file = F.coalesce("add", "remove")
        rows = actions.select(file.alias("file")).where("file.dataChange").select("file.path", "file.partitionValues")
        files = [(row["path"], (row["partitionValues"] or {}).get("_date")) for row in rows.collect()]
    except PySparkException:  # cleaned away since they were listed
        return EVER
    found = {day or (met[1] if (met := DAY.search(name)) else "") for name, day in files}
    if "" in found:
        return EVER
    starts = [to_millis(parse_instant(day, field="_date")) for day in found]
    return merge((start, start + 86_400_000) for start in starts)
