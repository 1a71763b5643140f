"""Holds the rows of archive and quarantine against what the commits that wrote them said.

A row that was lost, doubled or changed is told by topic, partition and offsets. Whole cells are compared, of every
commit that has rows in a range; rows of later ingests are left out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.ranges import Range, ceil, floor, merge
from tally.catalog.spec import Topic
from tally.control import manifests
from tally.errors import AnswerIsNo
from tally.sources import account, archive, contract
from tally.sources.cells import NONE, Cell, Manifest, Sums, merged
from tally.sources.checksum import HOUR, hourly, summed
from tally.sources.ranged import in_ranges

PLACES = ("archive", "quarantine")
# Hours that are compared one by one; of more than two years of them all rows are compared per partition instead.
MOST_HOURS = 20_000
SHOWN = 5  # mismatches in a message
EVERYTHING = [(-(1 << 60), 1 << 60)]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Offsets of a partition whose rows are not what the commit that wrote them said."""

    topic: str
    place: str  # archive | quarantine
    partition: int
    first: int
    to: int
    seq: int  # the ingest at fault
    lost: int  # rows too few; below 0: too many; 0: as many, and others

    def __str__(self) -> str:
        what = f"lost {self.lost}" if self.lost > 0 else f"{-self.lost} too many" if self.lost else "content differs"
        where = f"topic {self.topic}, partition {self.partition}, offsets [{self.first}, {self.to})"
        return f"{where}: {what} ({self.place}, ingest {self.seq})"


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What the commits up to an ingest say of a table's rows in some ranges of time, in whole cells of each commit."""

    place: str
    baseline: int  # up to this ingest one commit answers for the rows of all
    ranges: list[Range]
    said: dict[int, Manifest]  # by ingest
    exact: bool  # whether rows were decoded under the topic's contract: else only their bytes can be compared

    def unit(self, time: int) -> int:
        """Which of the ranges a time lies in."""
        return bisect_right(self.ranges, (time, 1 << 62)) - 1

    def by(self, seq: int) -> int:
        """The ingest whose commit answers for the rows of another one."""
        return max(seq, self.baseline)

    def cell(self, seq: int, hour: int) -> int:
        """The cell of a commit that an hour lies in, as far as hours are what they were when it was written."""
        if not self.exact:
            return 0
        return self.said[seq].cell_of(hour) if seq in self.said else hour


def check(
    spark: SparkSession,
    topic: Topic,
    ranges: Sequence[Range] | None,
    *,
    version: int | None = None,
    seq: int | None = None,
    pipeline: str | None = None,
) -> None:
    """Refuse to go on where archive or quarantine do not hold what was written, for event times in the ranges."""
    found = verify(spark, topic, ranges, version=version, seq=seq)
    if found:
        raise refusal(topic, found, pipeline)


def refusal(topic: Topic, found: Sequence[Mismatch], pipeline: str | None = None) -> AnswerIsNo:
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return AnswerIsNo(
        f"the archive is not what was written to it: {'; '.join(map(str, found[:SHOWN]))}{more}",
        pipeline=pipeline,
        field=topic.name,
        cure=f"tally mend {topic.name}: it reads these offsets from Kafka again",
    )


def verify(
    spark: SparkSession,
    topic: Topic,
    ranges: Sequence[Range] | None = None,
    *,
    version: int | None = None,
    seq: int | None = None,
    deep: bool = False,
) -> list[Mismatch]:
    """What of archive and quarantine is not as it was written; none where all is well.

    `ranges` are of event time, for refused records of broker time; None: all. The archive is read at a Delta version
    and up to an ingest, by default as it now is. `deep` compares keys and values too, which are most of a row's bytes.
    """
    last = archive.progress(topic)
    if last is None:
        return []
    account.complete(topic, last)
    era = last.era if version is None else manifests.era_at(topic.name, version)
    through = last.seq if seq is None else seq
    found = []
    for place in PLACES:
        if place == "quarantine" and era != last.era:
            continue  # it was written anew since, and nothing is stated from it
        at = version if place == "archive" else None
        found += differences(
            read(spark, topic, place, at, through), topic, claimed(topic, place, era, through, ranges), deep
        )
    return found


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


def claimed(topic: Topic, place: str, era: int, through: int, ranges: Sequence[Range] | None) -> Claimed:
    """What commits say of the ranges, which grow to whole cells of each of these commits."""
    claims = manifests.claims(topic.name, place, era, through)
    exact = {claim.contract for claim in claims} <= {contract.of(topic)}
    everything = ranges is None or not exact  # under another contract an event may have had another time
    reach = EVERYTHING if everything else merge((floor(a, HOUR), ceil(b, HOUR)) for a, b in ranges or ())
    said: dict[int, Manifest] = {}
    while True:
        met = {c.seq for c in claims if c.seq not in said and meets(reach, (c.from_ms, c.to_ms))}
        bodies = manifests.bodies(topic.name, place, era, met)
        said |= {seq: Manifest.from_words(body) for seq, body in bodies.items()}
        wider = widened(reach, said.values())
        if not met and wider == reach:
            break
        reach = wider
    if sum(end - start for start, end in reach) > MOST_HOURS * HOUR and reach != EVERYTHING:
        return claimed(topic, place, era, through, None)
    return Claimed(
        place=place,
        baseline=max((claim.seq for claim in claims if claim.baseline), default=-1),
        ranges=reach,
        said=said,
        exact=exact,
    )


def together(records: DataFrame, topic: Topic, era: int, through: int) -> list[Mismatch]:
    """The partitions in which the bytes of all records, wherever they lie, are not what commits said of both tables."""
    there = {
        row["_partition"]: Sums.of(row) for row in summed(hourly(records, topic, decoded=False), "_partition").collect()
    }
    wanted = merged(one for place in PLACES for one in said(topic, place, era, through))
    claims = Claimed(place=" and ".join(PLACES), baseline=through, ranges=EVERYTHING, said={}, exact=False)
    pairs = {p: (there.get(p, NONE), wanted.get(p, NONE)) for p in sorted(there.keys() | wanted.keys())}
    return [
        mismatch(topic, claims, (through, p, 0), *pair) for p, pair in pairs.items() if not same(*pair, exact=False)
    ]


def said(topic: Topic, place: str, era: int, through: int) -> Iterable[Manifest]:
    """The manifest of every commit that answers for rows of an era up to an ingest."""
    seqs = [claim.seq for claim in manifests.claims(topic.name, place, era, through)]
    return map(Manifest.from_words, manifests.bodies(topic.name, place, era, seqs).values())


def meets(ranges: Sequence[Range], other: Range) -> bool:
    """Whether one of these sorted ranges has an instant in common with another one."""
    at = bisect_right(ranges, (other[1] - 1, 1 << 62)) - 1
    return at >= 0 and ranges[at][1] > other[0]


def widened(ranges: list[Range], said: Iterable[Manifest]) -> list[Range]:
    """The ranges with each cell whole that one of them meets."""
    if ranges == EVERYTHING:
        return ranges
    found = list(ranges)
    for manifest in said:
        if not manifest.grain:
            return EVERYTHING
        spans = (manifest.range_of(number) for number in {number for _, number in manifest.cells})
        found += [span for span in spans if meets(ranges, span)]
    return merge(found)


def differences(rows: DataFrame, topic: Topic, claims: Claimed, deep: bool) -> list[Mismatch]:
    """Where records are not as claimed: first by range and partition, then, of these, commit by commit."""
    if not claims.ranges:
        return []
    hours = hourly(of_ranges(rows, topic, claims, claims.ranges), topic, decoded=claims.exact)
    cell = F.lit(0) if claims.ranges == EVERYTHING else F.col("_cell")
    there: dict[Cell, Sums] = {}
    for row in summed(hours, "_partition", cell.alias("_hour")).collect():
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


def same(one: Sums | None, other: Sums | None, *, exact: bool = True, deep: bool = False) -> bool:
    """Whether two sums are of the same rows: `exact` by what was decoded, `deep` or else by their bytes."""
    a, b = one or NONE, other or NONE
    return a.count == b.count and (a.rows == b.rows or not exact) and (a.bytes == b.bytes or (exact and not deep))


def of_ranges(rows: DataFrame, topic: Topic, claims: Claimed, ranges: Sequence[Range]) -> DataFrame:
    """The rows of a table whose cells lie in the ranges."""
    if list(ranges) == EVERYTHING:
        return rows
    return in_ranges(rows, topic.event_time if claims.place == "archive" else "_broker_time", ranges)


def cells_of(claims: Claimed) -> Iterable[tuple[int, int, int, Sums]]:
    """(ingest, partition, start of the cell, sums) of each cell in the ranges."""
    for seq, manifest in claims.said.items():
        for (partition, number), sums in manifest.cells.items():
            start = manifest.range_of(number)[0]
            unit = claims.unit(start)
            if unit >= 0 and start < claims.ranges[unit][1]:
                yield seq, partition, start, sums


def narrowed(rows: DataFrame, topic: Topic, claims: Claimed, wrong: set[Cell], deep: bool) -> list[Mismatch]:
    """The commits, partitions and offsets at fault."""
    units = sorted({unit for _, unit in wrong})
    inside = of_ranges(rows, topic, claims, [claims.ranges[unit] for unit in units])
    inside = inside.where(F.col("_partition").isin(sorted({partition for partition, _ in wrong})))
    hours = summed(hourly(inside, topic, decoded=claims.exact), "_partition", "_ingest", "_cell").collect()
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
