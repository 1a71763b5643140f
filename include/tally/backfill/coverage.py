"""What a backfill can be made from: the archive's offsets and Kafka's, put together. Reads; changes nothing."""

from __future__ import annotations

from datetime import datetime

from tally.backfill.plan import Coverage, Hole
from tally.catalog.duration import from_millis, parse_duration
from tally.catalog.spec import Pipeline, Topic
from tally.control import ledger, runs
from tally.settings import settings

ANSWER = 15.0  # seconds for the broker to hand out one record


def coverage(pipeline: Pipeline) -> Coverage:
    """The holes in what a pipeline's topics have left, in the archive or in Kafka."""
    holes: list[Hole] = []
    archived = waiting = 0
    for topic in pipeline.reads:
        kept, there = archived_ranges(topic.name), retained_ranges(topic.name)
        archived += sum(int(row["archived"]) for row in runs.ingest_history(topic.name))
        for partition, (begin, end) in sorted(there.items()):
            first, taken = kept.get(partition, (begin, begin))
            waiting += max(0, end - max(taken, begin))
            holes += partition_holes(topic, partition, (first, taken), begin, known=partition in kept)
    newest = ledger.newest(pipeline.name, pipeline.version)
    closed = from_millis(newest.watermark) if newest and newest.watermark > 0 else None
    return Coverage(holes=tuple(holes), archived=archived, waiting=waiting, closed_to=closed)


def partition_holes(topic: Topic, partition: int, kept: tuple[int, int], begin: int, *, known: bool) -> list[Hole]:
    """What is missing before the archive's first offset, and between its last and Kafka's first."""
    first, taken = kept
    spans = [(0, first)] if first > 0 else []
    if known and taken < begin:
        spans.append((taken, begin))
    return [
        Hole(topic=topic.name, partition=partition, first=a, end=b, before=untouched_from(topic, partition, b, begin))
        for a, b in spans
    ]


def archived_ranges(topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition that the archive holds."""
    ranges: dict[int, tuple[int, int]] = {}
    for row in runs.ingest_history(topic):
        for partition, (first, end) in row["ranges"].items():
            known = ranges.get(int(partition), (first, end))
            ranges[int(partition)] = (min(known[0], first), max(known[1], end))
    return ranges


def retained_ranges(topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition that Kafka holds; of a recreated topic they mean other records."""
    from tally.sources.kafka import begin_offsets, check_identity, end_offsets

    check_identity(topic)
    begin = begin_offsets(topic)
    return {partition: (begin.get(partition, 0), end) for partition, end in end_offsets(topic).items()}


def untouched_from(topic: Topic, partition: int, offset: int, begin: int) -> datetime | None:
    """An event time that no valid record before `offset` has: it would lie too far past its broker time."""
    if offset < begin:
        return None
    stamp = broker_time(topic.name, partition, offset)
    return None if stamp is None else from_millis(stamp) + parse_duration(settings().skew)


def broker_time(topic: str, partition: int, offset: int) -> int | None:
    """The broker's time of the first record at or after an offset, in milliseconds; None where there is none."""
    from confluent_kafka import Consumer, TopicPartition

    from tally.sources.client import librdkafka

    options = {"group.id": "tally-plan", "enable.auto.commit": "false", "isolation.level": "read_committed"}
    consumer = Consumer({**librdkafka(), **options, "log_level": "2"})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(ANSWER)
        return None if message is None or message.error() else int(message.timestamp()[1])
    finally:
        consumer.close()
