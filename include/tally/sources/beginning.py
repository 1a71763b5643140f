"""What both layers missed at the start of a topic: looked at when its archive is begun, and said in its commits.

Kafka keeps records for a while only, so most topics begin at a later offset than 0. How new the records may be that
were gone by then, the first ones that are kept tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.spec import Topic
from tally.control import beginnings, incidents, ledger, runs
from tally.control.store import now_ms
from tally.lake import delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Offsets = dict[int, tuple[int, int]]

# Offsets of a partition that are looked at for how new events were near its start. One late record would tell too old a
# time, a burst of them too; the more are looked at, the later the numbers begin.
NEAR = 1000
ANSWER = 15.0  # seconds for the broker to hand out one record
NEVER_ARCHIVED = "records never archived"  # an incident's cause


def words(topic: Topic, ranges: Offsets) -> dict[str, Any]:
    """What an ingest's commit says of the topic's beginning: the first one looks, the later ones repeat it."""
    newest = delta.newest(settings().table("archive", topic.name), "ingest")
    if newest is None:  # a new archive: what the control store knows of ingests is of one that was put aside
        return looked_at(topic, ranges)
    if "beginning" in newest.words:
        told: dict[str, Any] = newest.words["beginning"]
        return told
    # An archive that was made before its commits said so. Without its first ingest, the oldest one known has to do.
    begun = runs.ingest_history(topic.name)[:1]
    known = begun[0].ranges if begun else {int(p): (first, to) for p, (first, to) in newest.words["ranges"].items()}
    at = begun[0].committed_at if begun else now_ms()
    return {"at": at, "partitions": {p: near(span) for p, span in known.items() if span[0] > 0}}


def looked_at(topic: Topic, ranges: Offsets) -> dict[str, Any]:
    """The partitions that do not begin at offset 0, with what their first record says."""
    cut = {partition: span for partition, span in ranges.items() if span[0] > 0}
    told = {partition: near(span) for partition, span in cut.items()}
    for partition, (start, end) in cut.items():
        record = first_record(topic.name, partition, start) if start < end else None
        if record is not None:
            told[partition] |= {"broker_time": record[0], "append_time": record[1]}
    return {"at": now_ms(), "partitions": told}


def near(span: tuple[int, int]) -> dict[str, Any]:
    first, end = span
    return {"first": first, "to": min(first + NEAR, end), "broker_time": None, "append_time": False}


def note(spark: SparkSession, topic: Topic) -> None:
    """Copy the beginning from the archive into the control store, where that lacks it or says otherwise.

    Seals on windows before it are taken back each time: an older version of Tally knew of no beginnings, and of a copy
    that was changed nobody knows how long it stood. Idempotent by topic.
    """
    newest = delta.newest(settings().table("archive", topic.name), "ingest")
    if newest is None:
        return
    if not is_noted(topic, newest):
        told = newest.words.get("beginning") or words(topic, {})
        partitions = {int(partition): dict(found) for partition, found in told["partitions"].items()}
        times = newest_times(spark, topic, partitions)
        kept = {partition: {**found, "newest": times.get(partition)} for partition, found in partitions.items()}
        beginnings.keep(topic.name, told["at"], kept)
    mark(topic)


def is_noted(topic: Topic, newest: delta.Commit) -> bool:
    """Whether the control store knows what the archive's newest ingest says of the beginning."""
    said, known = newest.words.get("beginning"), beginnings.known(topic.name)
    return known is not None and (said is None or known == (said["at"], said["partitions"]))


def mark(topic: Topic) -> None:
    """Take seals back on windows before the beginning, of each pipeline that reads the topic."""
    for pipeline in catalogue().readers(topic.name):
        beginnings.mark(pipeline)


def report_never_archived(topic: Topic, begins: dict[int, int]) -> None:
    """Open an incident for each stream that began before the archive can, with each range that the archive lacks."""
    for pipeline in catalogue().readers(topic.name):
        first = next(iter(ledger.read(pipeline.name, pipeline.version, last=0)), None)
        read = first.ranges.get(topic.name, {}) if first else {}
        gone = [
            f"topic {topic.name}, partition {partition}, offsets [{start}, {begins[partition]})"
            for partition, (start, _) in sorted(read.items())
            if begins.get(partition, 0) > start
        ]
        if gone:
            incidents.report(
                pipeline.name,
                NEVER_ARCHIVED,
                f"records are gone: {'; '.join(gone)} were eaten by retention before the archive read them",
                cure=f"lengthen the topic's retention; tally plan {pipeline.name} names the windows that this touches",
            )


def newest_times(spark: SparkSession, topic: Topic, partitions: dict[int, dict[str, Any]]) -> dict[int, int]:
    """Per partition, the newest broker or event time among its first records, valid or refused, in milliseconds."""
    from pyspark.sql import functions as F

    spans = [(p, found["first"], found["to"]) for p, found in partitions.items() if found["first"] < found["to"]]
    if not spans:
        return {}
    wanted = F.broadcast(spark.createDataFrame(spans, "_partition INT, _first BIGINT, _to BIGINT"))
    found: dict[int, int] = {}
    for table, columns in (("archive", ["_broker_time", topic.event_time]), ("quarantine", ["_broker_time"])):
        rows = spark.read.format("delta").load(settings().table(table, topic.name))
        first = rows.join(wanted, "_partition").where("_offset >= _first AND _offset < _to")
        newest = [F.unix_millis(F.max(column)) for column in columns]
        for row in first.groupBy("_partition").agg(*newest).collect():
            found[row[0]] = max([found.get(row[0], 0), *filter(None, row[1:])])
    return found


def first_record(topic: str, partition: int, offset: int) -> tuple[int, bool] | None:
    """Broker time (ms) of the first committed record from an offset on, and whether the broker itself set it."""
    from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, TopicPartition

    from tally.sources.client import librdkafka

    options = {"group.id": "tally-plan", "enable.auto.commit": "false", "isolation.level": "read_committed"}
    consumer = Consumer({**librdkafka(), **options, "log_level": "2"})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(ANSWER)
        if message is None or message.error():
            return None
        kind, time = message.timestamp()
        return int(time), kind == TIMESTAMP_LOG_APPEND_TIME
    finally:
        consumer.close()
