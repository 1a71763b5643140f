"""What a Kafka cluster says of its topics: identity and offsets. No Spark."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tally.base.errors import DataLost, TallyError
from tally.base.settings import settings
from tally.control import runs
from tally.lake import delta
from tally.sources.client import librdkafka

PATIENCE = 15.0  # seconds for an answer: a broker that restarts is back in less, a wrong address is told soon
HURRY = 4.0  # seconds where somebody looks on, or others wait: a healthy cluster answers in a tenth of one


@cache
def client(items: tuple[tuple[str, str], ...]) -> AdminClient:
    return AdminClient(dict(items))


def admin() -> AdminClient:
    """The process's admin client for the configured cluster."""
    return client(tuple(sorted((librdkafka() | {"log_level": "2"}).items())))


def describe(topic: str, patience: float = PATIENCE) -> tuple[str, list[int]]:
    """A topic's id and its partitions; a missing topic or cluster is said with the cure."""
    try:
        future = admin().describe_topics(TopicCollection([topic]), request_timeout=patience)[topic]
        found: Any = future.result(patience + 1)
    except KafkaException as error:
        raise unreachable(topic, error) from None
    except TimeoutError:
        raise unreachable(topic, "no answer") from None
    return str(found.topic_id), sorted(partition.id for partition in found.partitions)


def offsets(topic: str, spec: OffsetSpec, patience: float) -> dict[int, int]:
    """The offset of each partition that a question has for its answer; -1 where it has none."""
    _, partitions = describe(topic, patience)
    try:
        futures = admin().list_offsets(
            {TopicPartition(topic, p): spec for p in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=patience,
        )
        return {asked.partition: future.result(patience + 1).offset for asked, future in futures.items()}
    except KafkaException as error:
        raise unreachable(topic, error) from None
    except TimeoutError:
        raise unreachable(topic, "no answer") from None


def end_offsets(topic: str, patience: float = PATIENCE) -> dict[int, int]:
    """The offset after the last committed record of each partition."""
    return offsets(topic, OffsetSpec.latest(), patience)


def begin_offsets(topic: str, patience: float = PATIENCE) -> dict[int, int]:
    """The first offset that retention has left in each partition."""
    return offsets(topic, OffsetSpec.earliest(), patience)


def offsets_before(topic: str, moment: int, patience: float = PATIENCE) -> dict[int, int]:
    """The offset after the last committed record of each partition that the broker had before a time (milliseconds)."""
    ends = end_offsets(topic, patience)
    later = offsets(topic, OffsetSpec.for_timestamp(moment), patience)
    return {partition: min(end, later[partition]) if later[partition] >= 0 else end for partition, end in ends.items()}


def offsets_since(topic: str, moment: int, patience: float = PATIENCE) -> dict[int, int]:
    """The first offset of each partition that the broker had at a time (milliseconds) or later; -1 where none is."""
    return offsets(topic, OffsetSpec.for_timestamp(moment), patience)


def check_identity(topic: str, patience: float = PATIENCE, *, remember: bool = True) -> str:
    """The topic's id, remembered at first sight; a topic that was recreated since is refused."""
    identity, _ = describe(topic, patience)
    told = runs.topic_id(topic)
    known = told or archived_identity(topic) or identity
    if known != identity:
        raise DataLost(
            f"topic {topic} is not the one that was read before (id {known}, now {identity}): it was recreated, "
            "and its offsets mean other records",
            field=topic,
            cure="give the topic a new name, or start with a new TALLY_HOME; "
            "tally rebuild takes the new topic where no batch archived the old one",
        )
    if told is None and remember:
        runs.remember_topic(topic, identity)
    return identity


def archived_identity(topic: str) -> str | None:
    """The id of the topic that the archive was read from: its commits know it when the control store is new."""
    newest = delta.newest(settings().table("archive", topic), "ingest")
    return str(newest.words["topic_id"]) if newest else None


def check_retained(
    topic: str, needed: dict[int, int], reached: dict[int, int], who: str | None, patience: float = PATIENCE
) -> None:
    """Raise with topic, partitions and ranges where records from `needed` on are gone, or none ever up to `reached`."""
    begin, end = begin_offsets(topic, patience), end_offsets(topic, patience)
    missing = sorted(needed.keys() - end.keys())
    if missing:
        raise DataLost(
            f"partitions are gone: topic {topic} has {len(end)} partitions, and partition {missing[0]} was read before",
            pipeline=who,
            field=topic,
            cure="give the topic a new name, or start with a new TALLY_HOME",
        )
    gone = [
        f"topic {topic}, partition {partition}, offsets [{offset}, {begin[partition]})"
        for partition, offset in sorted(needed.items())
        if begin.get(partition, 0) > offset
    ]
    if gone:
        rebuild = f"tally rebuild {who}" if who else "see docs/runbook.md"
        raise DataLost(
            f"records are gone: {'; '.join(gone)} were eaten by retention before they were read",
            pipeline=who,
            field=topic,
            cure=f"lengthen the topic's retention; then {rebuild}",
        )
    for partition, offset in sorted(reached.items()):
        if offset > end.get(partition, 0):
            raise DataLost(
                f"offsets went back: topic {topic}, partition {partition} ends at {end.get(partition, 0)}, but "
                f"[0, {offset}) was read before: the topic was recreated or truncated",
                pipeline=who,
                field=topic,
                cure="give the topic a new name, or start with a new TALLY_HOME",
            )


def count_records(topic: str, ranges: dict[int, tuple[int, int]]) -> int:
    """How many committed records lie in the ranges, counted by a client of its own; offsets may hold none."""
    consumer = Consumer(
        librdkafka()
        | {
            "group.id": "tally-count",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": "2",
        }
    )
    left = {partition: to for partition, (start, to) in ranges.items() if start < to}
    counted, silent_until = 0, time.monotonic() + PATIENCE
    try:
        consumer.assign([TopicPartition(topic, partition, ranges[partition][0]) for partition in left])
        while left:
            for message in consumer.consume(10_000, 1.0):
                silent_until = time.monotonic() + PATIENCE
                partition, error = message.partition(), message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise unreachable(topic, error)
                if partition not in left:
                    continue
                if error is not None or message.offset() >= left[partition]:
                    del left[partition]
                else:
                    counted += 1
                    if message.offset() + 1 == left[partition]:
                        del left[partition]
            if time.monotonic() > silent_until:
                raise unreachable(topic, "no answer")
    finally:
        consumer.close()
    return counted


def unreachable(topic: str, error: object) -> TallyError:
    cause = error.args[0] if isinstance(error, KafkaException) else error
    text = str(getattr(cause, "str", lambda: cause)())
    if getattr(cause, "name", lambda: "")() == "UNKNOWN_TOPIC_OR_PART":
        return TallyError("there is no such topic", field=topic, cure="tally up creates the catalogue's topics")
    cure = "check the brokers, the address and the network; it is asked again" if settings().kafka else "tally up"
    return TallyError(f"Kafka does not answer: {text}", field="TALLY_KAFKA", cure=cure)
