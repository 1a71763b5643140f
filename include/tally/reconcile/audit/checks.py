"""What an audit holds a seal against: the batch table's rows, the archive's manifests, and what the archive gives.

Each check reads many slots in one pass and compares them as data; the outcome is what is wrong, by seal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis, millis
from tally.batch import restate
from tally.catalog.ranges import Range, events_of, merge
from tally.catalog.spec import Pipeline, Topic
from tally.control import runs
from tally.control.seals import Seal
from tally.kinds import kind_of
from tally.reconcile.comparison import Comparison
from tally.reconcile.rows.digest import NOTHING, alike, same
from tally.reconcile.rows.hashes import digests
from tally.reconcile.trimmed import vouchers
from tally.sources.archived import Until, archive_versions
from tally.sources.witnesses import commit_copies, verification

Faults = dict[Seal, str]

UNJUDGED = "reconciliation {number}, which its seal names, did not seal these rows"
CHANGED = "the batch table's rows are not those that were sealed"
UNREADABLE = "the batch table's rows cannot be read"
NOT_WRITTEN = "the archive is not what was written to it"
NOT_GIVEN = "the archive no longer gives the rows that were sealed"
# Manifests are kept by the hour: closer than that nobody can tell which windows a lost event belonged to.
HOUR = 3_600_000
# Looks at parts of what fails. A lost hour among 50,000 windows takes about 20; where much is lost, more is held.
MOST_PASSES = 60
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
        return differing(of_days(rows, known), pipeline, known, CHANGED, same)
    except BROKEN as error:
        if not of_a_file(error):
            raise
        return day_by_day(rows, pipeline, known)


def of_comparisons(known: Sequence[Seal]) -> Faults:
    """The slots that the comparison which their seal names did not seal, or not with these rows. No Spark."""
    found: Faults = {}
    by_number: dict[int, list[Seal]] = {}
    for seal in known:
        by_number.setdefault(seal.reconciliation, []).append(seal)
    for number, mine in sorted(by_number.items()):
        row = runs.reconciliation(number)
        compared = Comparison.from_json(row) if row else None
        if compared and compared.verdict is None:
            continue  # an older store did not keep it
        good = {slot.start: slot for slot in compared.slots if compared.clears(slot)} if compared else {}
        for seal in mine:
            slot = good.get(seal.slot_start)
            if slot is None or not slot.closed or slot.digest != seal.digest or slot.end != seal.slot_end:
                found[seal] = UNJUDGED.format(number=number)
    return found


def day_by_day(rows: DataFrame, pipeline: Pipeline, known: Sequence[Seal]) -> Faults:
    """The same, where not all can be read: each day by itself, so that one lost file holds no more than its days."""
    found: Faults = {}
    by_day: dict[date, list[Seal]] = {}
    for seal in known:
        by_day.setdefault(from_millis(seal.slot_start).date(), []).append(seal)
    for mine in by_day.values():
        try:
            found |= differing(of_days(rows, mine), pipeline, mine, CHANGED, same)
        except BROKEN as error:
            if not of_a_file(error):
                raise
            found |= dict.fromkeys(mine, UNREADABLE)
    return found


def of_a_file(error: Exception) -> bool:
    """Whether a file that the table names is gone or broken: any other failure says nothing of what was sealed."""
    return "FAILED_READ_FILE" in str(error)


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

    As it is it is read first, once for all: it gives what was sealed wherever nothing came since. Files that cannot be
    read are for the manifests to tell.
    """
    try:
        return not_given(spark, pipeline, known) if known else {}
    except BROKEN as error:
        if not of_a_file(error):
            raise
        return {}


def not_given(spark: SparkSession, pipeline: Pipeline, known: Sequence[Seal]) -> Faults:
    # The table as it lies there: at the version that its last ingest made, harm done to it since would not be seen.
    newest = {name: Until(commit.seq) for name, commit in archive_versions(pipeline).items()}
    kind, wanted = kind_of(pipeline), merge((seal.slot_start, seal.slot_end) for seal in known)
    other = differing(kind.scope(spark, wanted, newest).rows, pipeline, known, NOT_GIVEN, alike)
    by_start = {seal.slot_start: seal for seal in other}
    for archive, told in vouchers(pipeline, list(other)):
        then = {topic: Until(seq) for topic, seq in archive.items()}
        mine = [by_start[slot] for slot in told]
        wanted = merge((seal.slot_start, seal.slot_end) for seal in mine)
        still = differing(kind.scope(spark, wanted, then).rows, pipeline, mine, NOT_GIVEN, alike)
        for seal in set(mine) - still.keys():
            del other[seal]
    return other


def of_manifests(spark: SparkSession, pipeline: Pipeline, known: Sequence[Seal], *, deep: bool = False) -> Faults:
    """The slots, by the hour, whose archived events are not what the ingests that wrote them said."""
    found: Faults = {}
    for at, topic in enumerate(pipeline.reads):

        def fault_of(some: Sequence[Seal], at: int = at, topic: Topic = topic) -> str:
            try:
                ranges = around(pipeline, at, some)
                extent = verification.Extent(topic=topic, ranges=ranges, places=["archive"], deep=deep)
                wrong = verification.verify(spark, extent)
            except BROKEN as error:
                if not of_a_file(error):
                    raise
                return f"{NOT_WRITTEN}: a file of topic {topic.name} cannot be read"
            return f"{NOT_WRITTEN}: {', '.join(map(str, wrong[: verification.SHOWN]))}" if wrong else ""

        if known:
            wrong = narrowed(known, fault_of, [0])
            if wrong:  # or what the control store has of the commits' words is: these decide
                commit_copies.repair(topic, whole=True)
                wrong = narrowed(known, fault_of, [0])
            add(found, wrong)
    return found


def around(pipeline: Pipeline, at: int, known: Sequence[Seal]) -> list[Range]:
    """The times of the events of one topic that these slots hold, and of those that may be copies of them."""
    near = millis(pipeline.reads[at].lateness)
    slots = merge((seal.slot_start, seal.slot_end) for seal in known)
    return merge((a - near, b + near) for a, b in (events_of(slot, pipeline, first=at == 0) for slot in slots))


def narrowed(known: Sequence[Seal], fault_of: Callable[[Sequence[Seal]], str], passes: list[int]) -> Faults:
    """Of slots in order those that fail, by halves: one look at all of them is the only one where none does."""
    passes[0] += 1
    fault = fault_of(known)
    if not fault:
        return {}
    if known[-1].slot_end - known[0].slot_start <= HOUR or len(known) == 1 or passes[0] > MOST_PASSES:
        return dict.fromkeys(known, fault)
    half = len(known) // 2
    found = narrowed(known[:half], fault_of, passes) | narrowed(known[half:], fault_of, passes)
    return found or dict.fromkeys(known, fault)


def differing(
    rows: DataFrame, pipeline: Pipeline, known: Sequence[Seal], fault: str, equal: Callable[[str, str], bool]
) -> Faults:
    """The slots whose rows digest otherwise than when they were sealed."""
    now = {slot: digest.text for slot, digest in digests(rows, pipeline).items()}
    return {seal: fault for seal in known if not equal(now.get(seal.slot_start, NOTHING), seal.digest)}
