"""What an audit holds a seal against: the batch table's rows, and what the archive gives when it is stated again.

Each check reads many slots in one pass and compares them as data; the outcome is what is wrong, by seal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from operator import eq

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.batch import restate
from tally.batch.events import Until, archive_versions
from tally.batch.scope import scope
from tally.catalog.duration import from_millis
from tally.catalog.ranges import merge
from tally.catalog.spec import Pipeline
from tally.control.seals import Seal
from tally.reconcile.digest import NOTHING, alike, digests
from tally.reconcile.trimmed import vouchers

Faults = dict[Seal, str]

CHANGED = "the batch table's rows are not those that were sealed"
UNREADABLE = "the batch table's rows cannot be read"
NOT_GIVEN = "the archive no longer gives the rows that were sealed"
BROKEN = (PySparkException, Py4JJavaError)


def add(found: Faults, more: Mapping[Seal, str]) -> None:
    """Put what another check found beside what is known."""
    for seal, fault in more.items():
        found[seal] = f"{found[seal]}; {fault}" if seal in found else fault


def of_table(spark: SparkSession, pipeline: Pipeline, known: Sequence[Seal], version: int) -> Faults:
    """The slots whose rows in a version of the batch table are not those of their seal."""
    if not known:
        return {}
    if version < 0:
        return dict.fromkeys(known, "the batch table is gone")
    rows = spark.read.format("delta").option("versionAsOf", version).load(restate.path(pipeline))
    try:
        return differing(of_days(rows, known), pipeline, known, CHANGED, eq)
    except BROKEN:
        return day_by_day(rows, pipeline, known)


def day_by_day(rows: DataFrame, pipeline: Pipeline, known: Sequence[Seal]) -> Faults:
    """The same, where not all can be read: each day by itself, so that one lost file holds no more than its days."""
    found: Faults = {}
    by_day: dict[date, list[Seal]] = {}
    for seal in known:
        by_day.setdefault(from_millis(seal.slot_start).date(), []).append(seal)
    for mine in by_day.values():
        try:
            found |= differing(of_days(rows, mine), pipeline, mine, CHANGED, eq)
        except BROKEN:
            found |= dict.fromkeys(mine, UNREADABLE)
    return found


def of_days(rows: DataFrame, known: Sequence[Seal]) -> DataFrame:
    """The rows on the days that these slots lie on, without the day."""
    days = sorted({day for seal in known for day in days_of(seal)})
    wanted = F.col("_date").between(F.lit(days[0]), F.lit(days[-1]))
    if (days[-1] - days[0]).days >= len(days):
        wanted &= F.col("_date").isin(days)
    return rows.where(wanted).drop("_date")


def days_of(seal: Seal) -> list[date]:
    first, last = from_millis(seal.slot_start).date(), from_millis(seal.slot_end - 1).date()
    return [first + timedelta(days=at) for at in range((last - first).days + 1)]


def of_archive(spark: SparkSession, pipeline: Pipeline, known: Sequence[Seal]) -> Faults:
    """The slots whose rows the archive does not give, neither as it is nor up to the ingests that the seal knew.

    As it is it is read first, once for all: it gives what was sealed wherever nothing came since.
    """
    if not known:
        return {}
    # The table as it lies there: at the version that its last ingest made, harm done to it since would not be seen.
    newest = {name: Until(commit.seq) for name, commit in archive_versions(pipeline).items()}
    wanted = merge((seal.slot_start, seal.slot_end) for seal in known)
    other = differing(scope(spark, pipeline, wanted, newest).rows, pipeline, known, NOT_GIVEN, alike)
    by_start = {seal.slot_start: seal for seal in other}
    for archive, told in vouchers(pipeline, list(other)):
        then = {topic: Until(seq) for topic, seq in archive.items()}
        mine = [by_start[slot] for slot in told]
        wanted = merge((seal.slot_start, seal.slot_end) for seal in mine)
        still = differing(scope(spark, pipeline, wanted, then).rows, pipeline, mine, NOT_GIVEN, alike)
        for seal in set(mine) - still.keys():
            del other[seal]
    return other


def differing(
    rows: DataFrame, pipeline: Pipeline, known: Sequence[Seal], fault: str, same: Callable[[str, str], bool]
) -> Faults:
    """The slots whose rows digest otherwise than when they were sealed."""
    now = {slot: digest.text for slot, digest in digests(rows, pipeline).items()}
    return {seal: fault for seal in known if not same(now.get(seal.slot_start, NOTHING), seal.digest)}
