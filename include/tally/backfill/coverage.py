"""What a backfill can be made from: the archive's offsets and Kafka's, put together. Reads; changes nothing."""

from __future__ import annotations

from datetime import datetime

from tally.backfill.plan import Coverage, Hole
from tally.base.duration import from_millis
from tally.catalog.spec import Pipeline, Topic
from tally.control import beginnings, ledger, runs
from tally.control.beginnings import Missed


def coverage(pipeline: Pipeline) -> Coverage:
    """The holes in what a pipeline's topics have left, in the archive or in Kafka."""
    holes: list[Hole] = []
    archived = waiting = 0
    begun = beginnings.of(pipeline)
    for topic in pipeline.reads:
        kept, there = archived_ranges(topic.name), retained_ranges(topic.name)
        archived += sum(one.archived for one in runs.ingest_history(topic.name))
        missed = {one.partition: one for one in begun.missed if one.topic == topic.name}
        for partition, (begin, end) in sorted(there.items()):
            first, taken = kept.get(partition, (begin, begin))
            waiting += max(0, end - max(taken, begin))
            spans = [(0, first)] if first > 0 else []
            if partition in kept and taken < begin:
                spans.append((taken, begin))
            for a, b in spans:
                known = missed.get(partition) if a == 0 else None
                before = from_millis(known.before(topic)) if known else untouched_from(topic, partition, b, begin)
                holes.append(Hole(topic=topic.name, partition=partition, first=a, end=b, before=before))
    newest = ledger.newest(pipeline.name, pipeline.version)
    closed = from_millis(newest.watermark) if newest and newest.watermark > 0 else None
    return Coverage(
        holes=tuple(holes),
        archived=archived,
        waiting=waiting,
        closed_to=closed,
        said=from_millis(begun.said.from_ms) if begun.said else None,
    )


def archived_ranges(topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition that the archive holds."""
    ranges: dict[int, tuple[int, int]] = {}
    for one in runs.ingest_history(topic):
        for partition, (first, end) in one.ranges.items():
            known = ranges.get(partition, (first, end))
            ranges[partition] = (min(known[0], first), max(known[1], end))
    return ranges


def retained_ranges(topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition that Kafka holds; of a recreated topic they mean other records."""
    from tally.sources.kafka import begin_offsets, check_identity, end_offsets

    check_identity(topic)
    begin = begin_offsets(topic)
    return {partition: (begin.get(partition, 0), end) for partition, end in end_offsets(topic).items()}


def untouched_from(topic: Topic, partition: int, offset: int, begin: int) -> datetime | None:
    """An event time that no valid record before `offset` has, as its first record in Kafka tells; None: nobody can."""
    if offset < begin:
        return None
    from tally.sources.beginning import first_record

    record = first_record(topic.name, partition, offset)
    if record is None:
        return None
    stamp, append_time = record
    missed = Missed(
        topic=topic.name, partition=partition, first=offset, begun_at=stamp,
        append_time=append_time, broker_time=stamp, newest=None,
    )  # fmt: skip
    return from_millis(missed.before(topic))
