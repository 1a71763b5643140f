"""The catalogue's topics exist: made where they are missing, left alone where they are not."""

from __future__ import annotations

from tally.base.errors import TallyError
from tally.base.settings import settings

ANSWER = 15.0  # seconds for a cluster to answer an admin request; a healthy one takes well under one


def create_topics(bootstrap: str) -> list[str]:
    """Make the catalogue's missing topics, stamped with the broker's time, and return the names of all it has."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    from tally.catalog.load import catalogue
    from tally.sources.client import librdkafka

    conf = settings()
    topics = catalogue().topics
    admin = AdminClient({**librdkafka(), "bootstrap.servers": bootstrap, "log_level": "0"})
    try:
        there = admin.list_topics(timeout=ANSWER).topics
    except KafkaException as error:
        raise TallyError(
            f"no answer from Kafka at {bootstrap}: {error.args[0].str()}",
            field="TALLY_KAFKA" if conf.kafka else None,
            cure="check the address and, for a secured cluster, TALLY_KAFKA_PROPERTIES",
        ) from None
    config = {
        # an event from the future is refused by its record's broker time, so the broker must be the one to stamp
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": str(conf.kafka_retention_hours * 3_600_000),
    }
    missing = [NewTopic(t.name, t.partitions, -1, config=config) for t in topics.values() if t.name not in there]
    for name, made in (admin.create_topics(missing, operation_timeout=ANSWER) if missing else {}).items():
        try:
            made.result(timeout=ANSWER)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TallyError(
                    f"topic {name} could not be made: {error.args[0].str()}",
                    field=name,
                    cure="make it by hand with message.timestamp.type=LogAppendTime, or give this user the right to",
                ) from None
    return sorted(topics)
