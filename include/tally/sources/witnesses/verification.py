"""Holds the rows of archive and quarantine against what the commits that wrote them said.

A row that was lost, doubled or changed is told by topic, partition and offsets. Whole cells are compared, of every
commit that has rows in a range; rows of later ingests are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.errors import AnswerIsNo
from tally.catalog.ranges import Range
from tally.catalog.spec import Topic
from tally.control import manifests
from tally.sources import archive
from tally.sources.ranged import in_ranges
from tally.sources.witnesses import commit_copies
from tally.sources.witnesses.checksum import HOUR, hashes, totalled
from tally.sources.witnesses.claims import EVERYTHING, Claimed, answering, cells_of, claimed
from tally.sources.witnesses.manifest import NONE, Cell, Sums, merged
from tally.sources.witnesses.mismatch import Mismatch, located

PLACES = ("archive", "quarantine")
SHOWN = 5  # mismatches in a message


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Which rows of a topic's archive and quarantine are held against what was said of them, and how closely.

    `ranges` are of event time, for refused records of broker time. `deep` compares keys and values too, which are most
    of a row's bytes.
    """

    topic: Topic
    ranges: Sequence[Range] | None = None  # all
    version: int | None = None  # of the archive's table in Delta; None: as it now is
    seq: int | None = None  # up to which ingest; None: the last
    since: int = -1  # after which ingest; -1: from the first
    places: Sequence[str] = PLACES
    deep: bool = False


def check(spark: SparkSession, extent: Extent, pipeline: str | None = None) -> None:
    """Refuse to go on where archive or quarantine do not hold what was written: see `verify`.

    Before they are accused, what the control store has of the commits' words is copied again: those decide.
    """
    try:
        found = verify(spark, extent)
        if found:
            commit_copies.repair(extent.topic, whole=True)
            found = verify(spark, extent)
    except (PySparkException, Py4JJavaError) as error:
        if "FAILED_READ_FILE" not in str(error):
            raise
        raise unreadable(extent.topic, pipeline) from None
    if found:
        raise refusal(extent.topic, found, pipeline)


def unreadable(topic: Topic, pipeline: str | None = None) -> AnswerIsNo:
    """A file that the log names is gone or broken."""
    return AnswerIsNo(
        f"a file of archive/{topic.name} cannot be read",
        pipeline=pipeline,
        field=topic.name,
        cure=f"put it back from a copy; or tally mend {topic.name}: it reads its records from Kafka again",
    )


def refusal(topic: Topic, found: Sequence[Mismatch], pipeline: str | None = None) -> AnswerIsNo:
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return AnswerIsNo(
        f"the archive is not what was written to it: {'; '.join(map(str, found[:SHOWN]))}{more}",
        pipeline=pipeline,
        field=topic.name,
        cure=f"tally mend {topic.name}: it reads these offsets from Kafka again",
    )


def verify(spark: SparkSession, extent: Extent) -> list[Mismatch]:
    """What of archive and quarantine is not as it was written; none where all is well."""
    topic, version = extent.topic, extent.version
    last = archive.progress(topic)
    if last is None:
        return []
    commit_copies.complete(topic, last)
    era = last.era if version is None else manifests.era_at(topic.name, version)
    through = last.seq if extent.seq is None else extent.seq
    versions = {"archive": version}

    def rows_of(place: str) -> DataFrame:
        return read(spark, topic, place, versions.get(place), through)

    found: list[Mismatch] = []
    for place in extent.places:
        if place == "quarantine" and era != last.era:
            continue  # all of it was written anew since
        claims = claimed(topic, place, era, through, extent.ranges, extent.since)
        found += differences(rows_of(place).where(F.col("_ingest") > claims.since), topic, claims, extent.deep)
    return located(found, {place: rows_of(place) for place in PLACES}) if found else []


def read(spark: SparkSession, topic: Topic, place: str, version: int | None, through: int) -> DataFrame:
    """The rows of a table up to an ingest, in the form that decode gives records."""
    where = archive.path(topic) if place == "archive" else archive.quarantine_path(topic)
    reader = spark.read.format("delta")
    rows = (reader.option("versionAsOf", version) if version is not None else reader).load(where)
    return as_records(rows.where(F.col("_ingest") <= through), topic, place)


def as_records(rows: DataFrame, topic: Topic, place: str) -> DataFrame:
    """Rows of a table in the form that decode gives records."""
    if place == "archive":
        return rows.withColumnRenamed("_value", "_raw").withColumn("_reason", F.lit(None).cast("string"))
    nothing = {field.name: F.lit(None).cast(field.type) for field in topic.schema}
    return rows.withColumns(nothing)


def together(records: DataFrame, topic: Topic, era: int, through: int) -> list[Mismatch]:
    """The partitions in which the bytes of all records, wherever they lie, are not what commits said of both tables."""
    there = {
        row["_partition"]: Sums.of(row)
        for row in totalled(hashes(records, topic, decoded=False), "_partition").collect()
    }
    wanted = merged(one for place in PLACES for one in answering(topic, place, era, through))
    claims = Claimed(place=" and ".join(PLACES), since=-1, baseline=through, ranges=EVERYTHING, said={}, exact=False)
    pairs = {p: (there.get(p, NONE), wanted.get(p, NONE)) for p in sorted(there.keys() | wanted.keys())}
    return [
        mismatch(topic, claims, (through, p, 0), *pair) for p, pair in pairs.items() if not same(*pair, exact=False)
    ]


def differences(rows: DataFrame, topic: Topic, claims: Claimed, deep: bool) -> list[Mismatch]:
    """Where records are not as claimed: first by range and partition, then, of these, commit by commit."""
    if not claims.ranges:
        return []
    hashed = hashes(of_ranges(rows, topic, claims, claims.ranges), topic, **asked(claims, deep))
    cell = F.lit(0) if claims.ranges == EVERYTHING else F.col("_cell")
    there: dict[Cell, Sums] = {}
    for row in totalled(hashed, "_partition", cell.alias("_hour")).collect():
        place = row["_partition"], claims.unit(row["_hour"] * HOUR)
        there[place] = there.get(place, NONE).plus(Sums.of(row))
    wanted: dict[Cell, Sums] = {}
    for _, partition, time, sums in cells_of(claims):
        place = partition, claims.unit(time)
        wanted[place] = wanted.get(place, NONE).plus(sums)
    wrong = {
        p for p in there.keys() | wanted.keys() if not same(there.get(p), wanted.get(p), exact=claims.exact, deep=deep)
    }
    return narrowed(rows, topic, claims, wrong, deep) if wrong else []


def asked(claims: Claimed, deep: bool) -> dict[str, bool]:
    """Of what the sums are needed that `same` looks at."""
    return {"decoded": claims.exact, "kept": deep or not claims.exact}


def same(one: Sums | None, other: Sums | None, *, exact: bool = True, deep: bool = False) -> bool:
    """Whether two sums are of the same rows: `exact` by what was decoded, `deep` or else by their bytes."""
    a, b = one or NONE, other or NONE
    return a.count == b.count and (a.rows == b.rows or not exact) and (a.bytes == b.bytes or (exact and not deep))


def of_ranges(rows: DataFrame, topic: Topic, claims: Claimed, ranges: Sequence[Range]) -> DataFrame:
    """The rows of a table whose cells lie in the ranges."""
    if list(ranges) == EVERYTHING:
        return rows
    return in_ranges(rows, topic.event_time if claims.place == "archive" else "_broker_time", ranges)


def narrowed(rows: DataFrame, topic: Topic, claims: Claimed, wrong: set[Cell], deep: bool) -> list[Mismatch]:
    """The commits, partitions and offsets at fault."""
    units = sorted({unit for _, unit in wrong})
    inside = of_ranges(rows, topic, claims, [claims.ranges[unit] for unit in units])
    inside = inside.where(F.col("_partition").isin(sorted({partition for partition, _ in wrong})))
    hours = totalled(hashes(inside, topic, **asked(claims, deep)), "_partition", "_ingest", "_cell").collect()
    there: dict[tuple[int, int, int], Sums] = {}
    for row in hours:
        if (row["_partition"], claims.unit(row["_cell"] * HOUR)) in wrong:
            seq = claims.by(row["_ingest"])
            key = seq, row["_partition"], claims.cell(seq, row["_cell"])
            there[key] = there.get(key, NONE).plus(Sums.of(row))
    wanted: dict[tuple[int, int, int], Sums] = {}
    for seq, partition, start, sums in cells_of(claims):
        if (partition, claims.unit(start)) in wrong:
            key = seq, partition, claims.cell(seq, start // HOUR)
            wanted[key] = wanted.get(key, NONE).plus(sums)
    found = []
    for key in sorted(there.keys() | wanted.keys()):
        a, b = there.get(key, NONE), wanted.get(key, NONE)
        if not same(a, b, exact=claims.exact, deep=deep):
            found.append(mismatch(topic, claims, key, a, b))
    return found


def mismatch(topic: Topic, claims: Claimed, key: tuple[int, int, int], there: Sums, wanted: Sums) -> Mismatch:
    both = there.plus(wanted)
    return Mismatch(
        topic=topic.name,
        place=claims.place,
        partition=key[1],
        first=both.first,
        to=both.last + 1,
        seq=key[0],
        lost=wanted.count - there.count,
    )
