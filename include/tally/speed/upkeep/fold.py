"""Keeps the speed table small: superseded rows are folded away, and windows sealed long ago are trimmed.

Only the stream's own driver calls this (see keeper), so the table keeps its one writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from itertools import islice

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import millis, parse_duration
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import seals
from tally.control.store import now_ms
from tally.lake import delta, tables
from tally.speed import commit
from tally.speed.upkeep import ledger_table

# A fold rewrites the days it touches: one with fewer files than this reads fast enough as it is.
FILES_WORTH_A_FOLD = 16
# Days of one fold or trim: their dates stand in its plan and its commit. The newest are folded first; a stream that
# catches up on a year has the rest of its days in later turns.
MOST_DAYS = 32


def newest_rows(rows: DataFrame, pipeline: Pipeline) -> DataFrame:
    """One row per window and key: that of the newest micro-batch."""
    keys = ["window_start", "window_end", *pipeline.key]
    others = [name for name in rows.columns if name not in keys]
    newest = rows.groupBy(*keys).agg(F.max_by(F.struct(*others), "_batch").alias("_row"))
    return newest.select(*keys, *(F.col(f"_row.{name}").alias(name) for name in others)).select(*rows.columns)


def fold(spark: SparkSession, pipeline: Pipeline, still_mine: Callable[[], None]) -> list[date]:
    """Rewrite the days of many files with their newest rows only, in one commit; doing so again changes nothing.

    `still_mine` raises where the table is another's to write.
    """
    where = commit.path(pipeline)
    days = crowded_days(where)
    if not days:
        return []
    chosen = F.col("_date").isin(days)
    rows = newest_rows(spark.read.format("delta").load(where).where(chosen), pipeline).coalesce(1)
    failpoint("speed.before_fold")
    still_mine()
    replace_days(rows, where, days, delta.words("fold", days=[str(day) for day in days]), same_data=True)
    failpoint("speed.after_fold")
    return days


def replace_days(rows: DataFrame, where: str, days: list[date], words: str, *, same_data: bool) -> None:
    """Put rows in the place of all of these days', in one commit."""
    dates = ", ".join(f"DATE'{day}'" for day in days)
    tables.replace(rows, where, words, only=f"_date IN ({dates})", dataChange=str(not same_data).lower())


def crowded_days(where: str) -> list[date]:
    """The days of a table that lie in so many files that a fold pays."""
    table = delta.table(where)
    if table is None:
        return []
    counts = Counter(map(day_of, table.file_uris()))
    return sorted(day for day, files in counts.items() if files >= FILES_WORTH_A_FOLD)[-MOST_DAYS:]


def trim(spark: SparkSession, pipeline: Pipeline, still_mine: Callable[[], None]) -> int:
    """Delete whole days whose every judged slot was sealed longer ago than the setting; the number of days.

    `still_mine` raises where the table is another's to write.
    """
    where = commit.path(pipeline)
    table = delta.table(where)
    if table is None:
        return 0
    before = now_ms() - millis(parse_duration(settings().trim_after, field="TALLY_TRIM_AFTER"))
    old = [day for day in days_of(table) if (day - date(1970, 1, 1)) / timedelta(milliseconds=1) < before]
    gone = list(islice((day for day in old if whole_day_sealed(spark, pipeline, day, before)), MOST_DAYS))
    if gone:
        still_mine()
        ledger_table.will_trim(spark, pipeline, gone)
        failpoint("speed.before_trim")
        still_mine()
        nothing = spark.read.format("delta").load(where).where("false")
        words = delta.words("trim", days=[str(day) for day in gone])
        replace_days(nothing, where, gone, words, same_data=False)
        failpoint("speed.after_trim")
    return len(gone)


def days_of(table: DeltaTable) -> list[date]:
    """The days that a table has files of."""
    return sorted(set(map(day_of, table.file_uris())))


def day_of(file: str) -> date:
    """The day that a file of the table is of, by its folder."""
    return date.fromisoformat(file.split("_date=")[1].split("/")[0])


def trimmed_days(pipeline: Pipeline, version: int) -> list[date]:
    """The days whose rows a version of the speed table no longer has because their windows were sealed long ago."""
    ever = ledger_table.trimmed(pipeline)
    return sorted(set(ever) - set(days_of(DeltaTable(commit.path(pipeline), version=version)))) if ever else []


def whole_day_sealed(spark: SparkSession, pipeline: Pipeline, day: date, before: int) -> bool:
    """Whether every slot that has a row on the speed table's day was sealed before an instant."""
    rows = spark.read.format("delta").load(commit.path(pipeline)).where(F.col("_date") == F.lit(day))
    starts = [row[0] for row in rows.select(F.unix_millis("window_start")).distinct().collect()]
    slots = {pipeline.slot(start) for start in starts}
    found = seals.read(pipeline.name, pipeline.version, min(slots), max(slots) + 1) if slots else []
    return slots <= {seal.slot_start for seal in found if seal.state == "sealed" and seal.changed_at < before}
