"""Sends records to Kafka, and writes the truth of each from its own delivery report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from tally.base.errors import TallyError
from tally.demo.events import Record
from tally.demo.truth import BUFFERED, TruthFile
from tally.sources.client import librdkafka

# Idempotent, so a retry never makes a second copy: the truth would not know of it. The queue is what a burst may hold
# before `send` waits for the broker; 200,000 records are some 60 MB.
TUNING = {
    "enable.idempotence": True,
    "compression.type": "lz4",
    "linger.ms": 10,
    "batch.size": 1_000_000,
    "batch.num.messages": 20_000,
    "queue.buffering.max.messages": 200_000,
    "partitioner": "murmur2_random",  # where Java's producers would put the key
    "log_level": 2,
}
# Seconds: for a broker to answer at the start, and for the last records to get through at the end.
ANSWER, FLUSH = 15.0, 120.0


class Sender:
    """One idempotent producer and a truth file per topic."""

    def __init__(self, topics: Iterable[str], folder: Path) -> None:
        from confluent_kafka import Producer

        options = librdkafka()
        _need_topics(topics, options)
        self._producer = Producer({**options, **TUNING})
        self._truth = {topic: TruthFile(folder, topic) for topic in topics}
        self.sent: Counter[tuple[str, str]] = Counter()
        self._failed: str | None = None

    def send(self, record: Record) -> None:
        """Queue a record; waits while the queue is full, and fails once any earlier record failed."""
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, on_delivery=partial(self._delivered, record)
                )
                return
            except BufferError:
                self.poll(0.1)

    def poll(self, seconds: float = 0.0) -> None:
        """Take delivery reports, waiting at most so long for one."""
        self._producer.poll(seconds)
        if self._failed:
            raise TallyError(
                f"Kafka refused a record: {self._failed}", cure="see the broker's log; what is in truth/ was delivered"
            )

    def flush_truth(self) -> None:
        """What has been delivered so far can be read in the truth files."""
        for truth in self._truth.values():
            truth.flush()

    def close(self) -> None:
        """Everything queued is delivered and its truth written, or it fails saying how much was not."""
        left = self._producer.flush(FLUSH)
        for truth in self._truth.values():
            truth.close()
        if left:
            raise TallyError(f"{left} records were not acknowledged within {FLUSH:g} s", cure="see the broker's log")
        self.poll()

    def _delivered(self, record: Record, error: Any, message: Any) -> None:
        if error is not None:
            self._failed = self._failed or f"{record.topic} {record.id}: {error.str()}"
            return
        topic, kind = record.topic, record.kind
        truth = self._truth[topic]
        truth.lines.append(
            f"{record.id},{message.partition()},{message.offset()},{kind},{record.event},{record.fields}\n"
        )
        if len(truth.lines) >= BUFFERED:
            truth.flush()
        self.sent[topic, kind] += 1


def _need_topics(topics: Iterable[str], options: dict[str, Any]) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    address = options["bootstrap.servers"]
    try:
        there = AdminClient({**options, "log_level": 0}).list_topics(timeout=ANSWER).topics
    except KafkaException as error:
        raise TallyError(f"no broker answers at {address}: {error.args[0].str()}", cure="tally up") from None
    missing = [topic for topic in topics if topic not in there]
    if missing:
        raise TallyError(f"no topic {', '.join(missing)} at {address}", cure="tally up makes the catalogue's topics")
