"""Appends what Kafka has and the archive lacks: exactly once, and each commit says what it wrote.

Quarantine is committed first, with the same planned ranges, and replaced by its number where the ingest begins again: a
crash between the two loses and doubles nothing.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.errors import AnswerIsNo
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.control import runs
from tally.control.store import now_ms
from tally.host import lock
from tally.lake import delta, tables
from tally.lake.session import jvm_pid
from tally.sources import archive, beginning, kafka, redecode
from tally.sources.archive import Ingest, Offsets
from tally.sources.client import spark_options
from tally.sources.frames import FETCH
from tally.sources.records import contract
from tally.sources.records.decode import are_many, decode
from tally.sources.witnesses import commit_copies, manifest
from tally.sources.witnesses.checksum import hourly


def ingest(spark: SparkSession, topic: Topic) -> list[Ingest]:
    """Append what the archive lacks of the records there are now; exactly once by (topic id, seq) in Delta's log."""
    with lock.table("archive", topic.name, jvm=jvm_pid(spark)):
        identity = kafka.check_identity(topic.name)
        archive.make_tables(spark, topic)
        redecode.bring(spark, topic)
        done: list[Ingest] = []
        asked = now_ms()
        ends = kafka.end_offsets(topic.name)  # later records are the next run's: a live topic never ends
        last = archive.progress(topic)
        if last is None:
            runs.forget_reached(topic.name)
            beginning.report_never_archived(topic, kafka.begin_offsets(topic.name))
        commit_copies.repair(topic)
        if last is not None:
            commit_copies.check_last(topic, last)
        while True:
            plan = next_range(topic, last, ends)
            if plan is None:
                beginning.note(spark, topic)
                runs.note_reached(topic.name, asked)
                return done
            seq, ranges = plan
            starts = {p: start for p, (start, _) in ranges.items()}
            kafka.check_retained(topic.name, starts, starts, who=None)
            last = append(spark, topic, identity, seq, ranges, last)
            done.append(last)


def lacks_nothing(topic: Topic) -> bool:
    """Whether the archive holds all that Kafka has, and needs nothing else; if so, it is noted. No Spark."""
    with lock.table("archive", topic.name):
        kafka.check_identity(topic.name)
        asked = now_ms()
        ends = kafka.end_offsets(topic.name)
        last, newest = archive.progress(topic), delta.newest(archive.path(topic), "ingest")
        if last is None or newest is None or last.contract != contract.of(topic) or redecode.unfinished(topic):
            return False
        commit_copies.repair(topic)
        commit_copies.check_last(topic, last)
        if next_range(topic, last, ends) is not None or not beginning.is_noted(topic, newest):
            return False
        beginning.mark(topic)
        runs.note_reached(topic.name, asked)
        return True


def next_range(topic: Topic, last: Ingest | None, ends: dict[int, int]) -> tuple[int, Offsets] | None:
    """What to append next: what quarantine already committed to, or what is left up to the ends; None when done."""
    seq = last.seq + 1 if last else archive.last_seq(topic) + 1
    begun = begun_at(topic, seq)
    if begun is not None:
        return seq, archive.offsets_of(begun.words["ranges"])
    begins = {p: to for p, (_, to) in last.ranges.items()} if last else kafka.begin_offsets(topic.name)
    new = {p: begins.get(p, 0) for p in ends}
    waiting = sum(max(0, ends[p] - new[p]) for p in ends)
    if waiting == 0:
        return None
    share = min(1.0, settings().max_offsets_per_ingest / waiting)
    return seq, {p: (new[p], new[p] + max(0, -int(-(ends[p] - new[p]) * share // 1))) for p in ends}


def begun_at(topic: Topic, seq: int) -> delta.Commit | None:
    """The quarantine's commit of an ingest."""
    newest = delta.newest(archive.quarantine_path(topic), "quarantine")
    return newest if newest is not None and newest.words["seq"] == seq else None


def read_kafka(spark: SparkSession, topic: str, ranges: Offsets) -> DataFrame:
    """Exactly the committed records of the ranges."""
    starts, ends = ({str(p): r[side] for p, r in ranges.items()} for side in (0, 1))
    return (
        spark.read.format("kafka")
        .options(**spark_options(), **FETCH)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: starts}))
        .option("endingOffsets", json.dumps({topic: ends}))
        .option("failOnDataLoss", "true")
        .load()
        .withColumnRenamed("key", "_key")
    )


def append(
    spark: SparkSession, topic: Topic, identity: str, seq: int, ranges: Offsets, last: Ingest | None
) -> Ingest:  # fmt: skip
    """One archive commit and, before it, its quarantine commit where a record was refused."""
    offsets = sum(to - start for start, to in ranges.values())
    records = decode(read_kafka(spark, topic.name, ranges), topic, "_key", together=are_many(offsets)).withColumn(
        "_ingest", F.lit(seq).cast("long")
    )
    decoded = archive.bytes_kept(records).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = manifest.count(hourly(decoded, topic))
        plan: dict[str, Any] = {
            "topic": topic.name,
            "topic_id": identity,
            "seq": seq,
            "ranges": ranges,
            "since": since(topic, last, seq),
            "contract": contract.of(topic),
            "event_time": topic.event_time,
            "era": last.era if last else 0,
        }
        gaps = check_whole(topic, ranges, counted.records)
        failpoint("ingest.before_quarantine")
        if counted.quarantine.count or begun_at(topic, seq):
            said = delta.words("quarantine", **plan, manifest=counted.quarantine.as_words())
            replace_refused(archive.quarantine_rows(decoded, topic), topic, seq, said)
            archive.check_written(topic, archive.quarantine_path(topic), "quarantine", counted.quarantine.count)
        failpoint("ingest.between_quarantine_and_archive")
        said = delta.words(
            "ingest", **plan, gaps=gaps, **commit_copies.counts(counted), manifest=counted.archive.as_words(),
            beginning=beginning.words(topic, ranges),
        )  # fmt: skip
        commit(archive.archive_rows(decoded, topic), archive.path(topic), f"archive/{identity}", seq, said)
        archive.check_written(topic, archive.path(topic), "ingest", counted.archive.count)
        failpoint("ingest.after_archive")
    finally:
        decoded.unpersist()
    commit_copies.repair(topic)
    failpoint("ingest.after_record")
    done = archive.progress(topic)
    assert done is not None and done.seq == seq
    return done


def since(topic: Topic, last: Ingest | None, seq: int) -> int:
    """The number of the archive's first ingest: what the control store knows of earlier ones is of another archive."""
    newest = delta.newest(archive.path(topic), "ingest") if last else None
    return int(newest.words["since"]) if newest else seq


def check_whole(topic: Topic, ranges: Offsets, records: int) -> int:
    """How many offsets hold no record, by another client than read them; fewer read than Kafka holds is refused."""
    offsets = sum(to - start for start, to in ranges.values())
    if records == offsets:
        return 0
    there = kafka.count_records(topic.name, ranges)
    if there != records:
        raise AnswerIsNo(
            f"Kafka holds {there:,} committed records in offsets {ranges}, and {records:,} of them were read",
            field=topic.name,
            cure="nothing was archived; run it again, and look at the brokers where it stays",
        )
    return offsets - there


def replace_refused(rows: DataFrame, topic: Topic, seq: int, words: str) -> None:
    """Put the refused records of one ingest in the place of all of that number."""
    where = archive.quarantine_path(topic)
    tables.replace(rows, where, words, only=f"_ingest = {seq}", compression=archive.COMPRESSION)


def commit(rows: DataFrame, where: str, app: str, seq: int, words: str) -> None:
    """Append the valid records of one ingest; idempotent by application and number."""
    tables.append(rows, where, words, txnAppId=app, txnVersion=seq, compression=archive.COMPRESSION)
