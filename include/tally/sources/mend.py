"""Reads from Kafka again what archive or quarantine no longer hold as it was written, and puts just that in its place.

It is worked out first what both would be then: nothing is written that the manifests would not be content with.
Idempotent by offsets: a mend that dies is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import zip_longest
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.errors import AnswerIsNo
from tally.base.failpoints import failpoint
from tally.catalog.ranges import Range, merge, overlap
from tally.catalog.spec import Topic
from tally.control import runs
from tally.host import lock
from tally.lake import delta, memory, tables
from tally.lake.session import jvm_pid
from tally.sources import archive, kafka, redecode, unreadable
from tally.sources.archive import Ingest
from tally.sources.ingest import read_kafka
from tally.sources.records import contract
from tally.sources.records.decode import decode
from tally.sources.witnesses import commit_copies, verification
from tally.sources.witnesses.checksum import RECORD
from tally.sources.witnesses.claims import claimed
from tally.sources.witnesses.mismatch import Mismatch

Places = dict[int, list[Range]]  # ranges of offsets, by partition

# Ranges of a partition that are replaced; between more of them records are read again that were whole.
MOST_RANGES = 8
UNDECODED = "undecoded"  # the reason of a record that waits for its contract


@dataclass(frozen=True, kw_only=True)
class Mended:
    """What was wrong, which offsets were read again, and which Kafka has no more."""

    topic: str
    found: list[Mismatch]
    read: Places
    gone: list[str]
    unreadable: list[str] = field(default_factory=list)  # files that were gone or broken

    def as_dict(self) -> dict[str, Any]:
        offsets = [{"partition": p, "from": a, "to": b} for p, ranges in sorted(self.read.items()) for a, b in ranges]
        found = list(map(str, self.found))
        return {
            "topic": self.topic, "unreadable": self.unreadable, "found": found, "mended": offsets, "gone": self.gone
        }  # fmt: skip


@memory.told(memory.BATCH)
def mend(spark: SparkSession, topic: Topic) -> Mended:
    """Mend what can be; where Kafka does not hold it any more, the answer is no, with topic, partition and range."""
    with lock.table("archive", topic.name, jvm=jvm_pid(spark)):
        archive.check_layout(topic, archive.path(topic))
        kafka.check_identity(topic.name)
        last = archive.progress(topic)
        if last is None:
            return Mended(topic=topic.name, found=[], read={}, gone=[])
        unread = unreadable.take_out(topic)
        if redecode.begun(topic, last.era):
            redecode.bring(spark, topic)
        commit_copies.repair(topic, whole=True)
        last = archive.progress(topic)
        assert last is not None
        found = verification.verify(spark, verification.Extent(topic=topic, deep=True))
        wrong, gone = retained(topic, found)
        if wrong:
            replace(spark, topic, last, wrong)
        if not gone:
            redecode.bring(spark, topic)
            left = verification.verify(spark, verification.Extent(topic=topic, deep=True))
            if left:
                raise verification.refusal(topic, left)
    return Mended(topic=topic.name, found=found, read=wrong, gone=gone, unreadable=unread)


def retained(topic: Topic, found: Sequence[Mismatch]) -> tuple[Places, list[str]]:
    """The offsets at fault that Kafka still holds, and those it does not, told one by one."""
    begins, taken = kafka.begin_offsets(topic.name), ingested(topic)
    wrong: Places = {}
    for one in found:
        wrong.setdefault(one.partition, []).append((one.first, one.to))
    gone: list[str] = []
    for partition, ranges in wrong.items():
        begin = begins.get(partition, 0)
        wrong[partition] = merge(ranges, most=MOST_RANGES)
        for start, end in list(wrong[partition]):
            if any(a < begin for a, _ in overlap([(start, end)], taken.get(partition, []))):
                wrong[partition].remove((start, end))
                gone.append(f"topic {topic.name}, partition {partition}, offsets [{start}, {min(begin, end)})")
    return {partition: ranges for partition, ranges in wrong.items() if ranges}, gone


def ingested(topic: Topic) -> Places:
    """All offsets that were ever ingested."""
    found: Places = {}
    for one in runs.ingest_history(topic.name):
        for partition, (start, to) in one.ranges.items():
            found.setdefault(partition, []).append((start, to))
    return {partition: merge(ranges) for partition, ranges in found.items()}


def replace(spark: SparkSession, topic: Topic, last: Ingest, wrong: Places) -> None:
    """One commit of the quarantine and one of the archive, in each of which just these offsets are others."""
    records = read_again(spark, topic, wrong)
    current = last.contract == contract.of(topic)
    if not current:  # the archive has other columns: as refused records they wait for all to be decoded again
        records = records.withColumn("_reason", F.lit(UNDECODED))
    records = records.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        check_whole(spark, topic, last, wrong, records, current=current)
        words = delta.words("mend", topic=topic.name, offsets=wrong)
        overwrite(archive.quarantine_rows(records, topic), archive.quarantine_path(topic), wrong, words)
        failpoint("mend.between_quarantine_and_archive")
        rows = archive.archive_rows(records, topic)
        if not current:
            rows = spark.read.format("delta").load(archive.path(topic)).where("false")
        overwrite(rows, archive.path(topic), wrong, words)
        failpoint("mend.after_archive")
    finally:
        records.unpersist()


def read_again(spark: SparkSession, topic: Topic, wrong: Places) -> DataFrame:
    """The records of these offsets, as ingest made them, each with the number of the ingest that took it."""
    taken = ingested(topic)
    parts = {partition: overlap(ranges, taken.get(partition, [])) for partition, ranges in wrong.items()}
    parts = {partition: ranges for partition, ranges in parts.items() if ranges}
    nothing = {partition: (at, at) for partition, at in kafka.begin_offsets(topic.name).items()}
    turns = [dict(zip(parts, turn, strict=True)) for turn in zip_longest(*parts.values())] or [{}]
    frames = [
        read_kafka(spark, topic.name, nothing | {p: ranges for p, ranges in turn.items() if ranges}) for turn in turns
    ]
    raw = reduce(DataFrame.unionByName, frames)
    numbers = [
        (partition, start, to, one.seq)
        for one in runs.ingest_history(topic.name)
        for partition, (start, to) in one.ranges.items()
        if overlap([(start, to)], parts.get(partition, []))
    ]
    known = F.broadcast(spark.createDataFrame(numbers, "_of INT, _from BIGINT, _to BIGINT, _ingest BIGINT"))
    of = (F.col("partition") == F.col("_of")) & (F.col("offset") >= F.col("_from")) & (F.col("offset") < F.col("_to"))
    records = decode(raw.join(known, of), topic, "_key", "_ingest")
    return archive.bytes_kept(records)


def check_whole(
    spark: SparkSession, topic: Topic, last: Ingest, wrong: Places, records: DataFrame, *, current: bool
) -> None:
    """Refuse where the manifests would not hold with these records in place: Kafka has not all that it had."""
    columns = (*RECORD, *(topic.columns if current else ()))
    after = {}
    for place, mine in (("archive", "_reason IS NULL"), ("quarantine", "_reason IS NOT NULL")):
        others = verification.read(spark, topic, place, None, last.seq).where(f"NOT ({inside(wrong)})")
        after[place] = others.select(*columns).unionByName(records.where(mine).select(*columns))
    if current:
        claims = {place: claimed(topic, place, last.era, last.seq, None) for place in after}
        left = [
            m for place, rows in after.items() for m in verification.differences(rows, topic, claims[place], deep=True)
        ]
    else:
        left = verification.together(after["archive"].unionByName(after["quarantine"]), topic, last.era, last.seq)
    still = [m for m in left if overlap([(m.first, m.to)], wrong.get(m.partition, []))]
    if still:
        raise AnswerIsNo(
            f"Kafka does not hold all of it any more: with its records there would still be {still[0]}",
            field=topic.name,
            cure=f"nothing was changed; {archive.aside(topic)}",
        )


def overwrite(rows: DataFrame, where: str, wrong: Places, words: str) -> None:
    """Put rows in the place of all that have these offsets."""
    tables.replace(rows, where, words, only=inside(wrong), compression=archive.COMPRESSION)


def inside(wrong: Places) -> str:
    """Whether a row has one of these offsets."""
    tests = [
        f"(_partition = {partition} AND _offset >= {start} AND _offset < {to})"
        for partition, ranges in sorted(wrong.items())
        for start, to in ranges
    ]
    return " OR ".join(tests)
