"""The archive: every valid record, once, with its partition and offset; beside it every refused one with its reason.

A commit of the archive holds the end offsets, and is what counts as progress. Quarantine is committed first, under the
same transaction number and with the same planned ranges, so that a crash between the two loses and doubles nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally import lake
from tally.catalog.spec import Topic
from tally.control import runs
from tally.control.store import now_ms
from tally.engine import jvm_pid
from tally.errors import AnswerIsNo
from tally.failpoints import failpoint
from tally.settings import settings
from tally.sources import beginning, kafka, unarchived
from tally.sources.client import spark_options
from tally.sources.decode import decode
from tally.sources.frames import FETCH, partition_date
from tally.speed.commit import make_table
from tally.supervise import lock

Offsets = dict[int, tuple[int, int]]

PROPERTIES = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.dataSkippingNumIndexedCols": "6",
}


@dataclass(frozen=True, kw_only=True)
class Ingest:
    """One archive commit: its ranges and where each of their offsets went."""

    topic: str
    seq: int
    ranges: Offsets
    archived: int
    quarantined: dict[str, int]
    delta_version: int

    @property
    def records(self) -> int:
        return sum(to - start for start, to in self.ranges.values())

    @property
    def gaps(self) -> int:
        """Offsets that hold no record: transaction markers, aborted or compacted records."""
        return self.records - self.archived - sum(self.quarantined.values())


def path(topic: Topic) -> str:
    return settings().table("archive", topic.name)


def quarantine_path(topic: Topic) -> str:
    return settings().table("quarantine", topic.name)


def progress(topic: Topic) -> Ingest | None:
    """The newest archive commit, from the archive's own log; the control store knows it when the log was cleaned."""
    commit = lake.newest(path(topic), "ingest")
    if commit is not None:
        return from_words(topic, commit.words, commit.version)
    known = runs.ingest_history(topic.name)
    if not known:
        return None
    row = known[-1]
    ranges = {int(p): (r[0], r[1]) for p, r in row["ranges"].items()}
    return Ingest(
        topic=topic.name,
        seq=row["seq"],
        ranges=ranges,
        archived=row["archived"],
        quarantined=row["quarantined"],
        delta_version=row["delta_version"],
    )


def ingest(spark: SparkSession, topic: Topic) -> list[Ingest]:
    """Append what the archive lacks of the records there are now; exactly once by (topic id, seq) in Delta's log."""
    with lock.table("archive", topic.name, jvm=jvm_pid(spark)):
        identity = kafka.check_identity(topic.name)
        make_tables(spark, topic)
        done: list[Ingest] = []
        ends = kafka.end_offsets(topic.name)  # later records are the next run's: a live topic never ends
        last = progress(topic)
        if last is None:
            unarchived.tell(topic, kafka.begin_offsets(topic.name))
        repair(topic)
        while True:
            plan = next_range(topic, last, ends)
            if plan is None:
                beginning.note(spark, topic)
                return done
            seq, ranges = plan
            starts = {p: start for p, (start, _) in ranges.items()}
            kafka.check_retained(topic.name, starts, starts, who=None)
            last = append(spark, topic, identity, seq, ranges)
            done.append(last)


def repair(topic: Topic) -> None:
    """Copy the archive's commits that the control store lacks: a crash may have come between the two."""
    known = {row["seq"] for row in runs.ingest_history(topic.name)}
    for commit in lake.commits(path(topic)):
        if commit.words.get("kind") == "ingest":
            if commit.words["seq"] in known:
                return
            record(from_words(topic, commit.words, commit.version))


def next_range(topic: Topic, last: Ingest | None, ends: dict[int, int]) -> tuple[int, Offsets] | None:
    """What to append next: what quarantine already committed to, or what is left up to the ends; None when done."""
    seq = last.seq + 1 if last else 0
    begun = lake.newest(quarantine_path(topic), "quarantine")
    if begun is not None and begun.words["seq"] == seq:
        return seq, {int(p): (r[0], r[1]) for p, r in begun.words["ranges"].items()}
    begins = {p: to for p, (_, to) in last.ranges.items()} if last else kafka.begin_offsets(topic.name)
    new = {p: begins.get(p, 0) for p in ends}
    waiting = sum(max(0, ends[p] - new[p]) for p in ends)
    if waiting == 0:
        return None
    share = min(1.0, settings().max_offsets_per_ingest / waiting)
    return seq, {p: (new[p], new[p] + max(0, -int(-(ends[p] - new[p]) * share // 1))) for p in ends}


def read_kafka(spark: SparkSession, topic: str, ranges: Offsets) -> DataFrame:
    """Exactly the committed records of the ranges."""
    import json

    starts, ends = ({str(p): r[side] for p, r in ranges.items()} for side in (0, 1))
    return (
        spark.read.format("kafka")
        .options(**spark_options(), **FETCH)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: starts}))
        .option("endingOffsets", json.dumps({topic: ends}))
        .option("failOnDataLoss", "true")
        .load()
    )


def append(spark: SparkSession, topic: Topic, identity: str, seq: int, ranges: Offsets) -> Ingest:
    """One archive commit and, before it, its quarantine commit where a record was refused."""
    decoded = decode(read_kafka(spark, topic.name, ranges), topic).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        refused = decoded.where("_reason IS NOT NULL")
        counts = {row["_reason"]: row["count"] for row in decoded.groupBy("_reason").count().collect()}
        check_whole(topic, ranges, sum(counts.values()))
        counts.pop(None, None)
        plan: dict[str, Any] = {"topic": topic.name, "topic_id": identity, "seq": seq, "ranges": ranges}
        failpoint("ingest.before_quarantine")
        if counts:
            rows = refused.select(
                "_partition", "_offset", "_broker_time", "_reason", "_raw", F.lit(seq).cast("bigint").alias("_ingest")
            )
            commit(
                rows,
                quarantine_path(topic),
                "_broker_time",
                f"quarantine/{identity}",
                seq,
                lake.words("quarantine", **plan),
            )
        failpoint("ingest.between_quarantine_and_archive")
        rows = decoded.where("_reason IS NULL").select(
            "_partition", "_offset", "_broker_time", F.lit(seq).cast("bigint").alias("_ingest"), *topic.columns
        )
        said = lake.words("ingest", **plan, quarantined=counts, beginning=beginning.words(topic, ranges))
        commit(rows, path(topic), topic.event_time, f"archive/{identity}", seq, said)
        failpoint("ingest.after_archive")
    finally:
        decoded.unpersist()
    done = progress(topic)
    assert done is not None and done.seq == seq
    record(done)
    failpoint("ingest.after_record")
    return done


def check_whole(topic: Topic, ranges: Offsets, records: int) -> None:
    """Refuse to archive fewer records than Kafka holds: offsets without one are counted by another client."""
    offsets = sum(to - start for start, to in ranges.values())
    if records == offsets:
        return
    there = kafka.count_records(topic.name, ranges)
    if there != records:
        raise AnswerIsNo(
            f"Kafka holds {there:,} committed records in offsets {ranges}, and {records:,} of them were read",
            field=topic.name,
            cure="nothing was archived; run it again, and look at the brokers where it stays",
        )


def commit(rows: DataFrame, where: str, time: str, app: str, seq: int, words: str) -> None:
    (
        rows.withColumn("_date", partition_date(time))
        .write.format("delta")
        .mode("append")
        .option("txnAppId", app)
        .option("txnVersion", seq)
        .option("userMetadata", words)
        .save(where)
    )


def make_tables(spark: SparkSession, topic: Topic) -> None:
    head = "_partition INT, _offset BIGINT, _broker_time TIMESTAMP"
    shape = spark.createDataFrame([], f"{head}, _ingest BIGINT, {topic.ddl}, _date DATE")
    make_table(spark, path(topic), shape, PROPERTIES)
    shape = spark.createDataFrame([], f"{head}, _reason STRING, _raw BINARY, _ingest BIGINT, _date DATE")
    make_table(spark, quarantine_path(topic), shape, PROPERTIES)


def from_words(topic: Topic, words: dict[str, Any], version: int) -> Ingest:
    commit = next(c for c in lake.commits(path(topic)) if c.version == version)
    return Ingest(
        topic=topic.name,
        seq=words["seq"],
        ranges={int(p): (r[0], r[1]) for p, r in words["ranges"].items()},
        archived=int(commit.metrics.get("numOutputRows") or 0),
        quarantined={reason: int(n) for reason, n in words["quarantined"].items()},
        delta_version=version,
    )


def record(done: Ingest) -> None:
    runs.record_ingest(
        {
            "topic": done.topic,
            "seq": done.seq,
            "ranges": done.ranges,
            "archived": done.archived,
            "quarantined": done.quarantined,
            "gaps": done.gaps,
            "delta_version": done.delta_version,
            "committed_at": now_ms(),
        }
    )
