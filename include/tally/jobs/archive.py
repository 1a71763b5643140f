"""An archive run: what Kafka has of a topic and the archive lacks, for all pipelines that read it."""

from __future__ import annotations

from dataclasses import dataclass

from tally.catalog.load import catalogue
from tally.catalog.spec import Topic
from tally.control import runs
from tally.lake import memory
from tally.lake.session import session
from tally.sources import kafka
from tally.sources.archive import Ingest
from tally.sources.ingest import ingest, lacks_nothing

# One compiler of the JVM's does for so many records (see BRIEF): a restatement of 100,000 events took 13 CPU seconds
# with it and 24 with both, of 400,000 14 and 19. From how many on the second one pays was not measured.
FEW_RECORDS = 500_000


@dataclass(frozen=True, kw_only=True)
class Archived:
    """What an archive run took in."""

    topic: str
    ingested: list[Ingest]

    def __str__(self) -> str:
        return "\n".join(map(line, self.ingested)) or nothing_new(self.topic)


@memory.told(memory.BATCH)
def archive(name: str) -> Archived:
    """Append what is new of a topic, in commits of at most the setting's records each."""
    topic = catalogue().topic(name)
    spark = session(f"tally-archive-{name}", brief=waiting(topic) <= FEW_RECORDS)
    return Archived(topic=name, ingested=ingest(spark, topic))


def without_spark(name: str) -> str | None:
    """What is said where nothing is new, and nothing else is to be done; None where that takes Spark."""
    return nothing_new(name) if lacks_nothing(catalogue().topic(name)) else None


def line(done: Ingest) -> str:
    refused = sum(done.quarantined.values())
    return f"archived {done.archived:,} of {done.records:,} records of {done.topic}, {refused:,} quarantined"


def nothing_new(topic: str) -> str:
    return f"nothing new to archive of {topic}"


def waiting(topic: Topic) -> int:
    """Records of Kafka's that no archive commit took, as far as the control store knows."""
    return known(topic) - taken(topic)


def taken(topic: Topic) -> int:
    """Records that the archive's commits took, refused ones too."""
    return sum(to - start for one in runs.ingest_history(topic.name) for start, to in one.ranges.values())


def known(topic: Topic) -> int:
    """Records from where the archive begins, or would, to Kafka's ends."""
    history = runs.ingest_history(topic.name)
    starts = {p: start for p, (start, _) in history[0].ranges.items()} if history else {}
    begins = starts or kafka.begin_offsets(topic.name)
    return sum(end - begins.get(p, 0) for p, end in kafka.end_offsets(topic.name).items())
