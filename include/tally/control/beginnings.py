"""Where the numbers of a pipeline begin: what no layer could ever read of its topics, and what a person said of it.

Windows that start before the beginning may lack events that retention had eaten: they are partial, and never sealed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tally.base.duration import from_millis, iso, millis, parse_duration
from tally.base.settings import settings
from tally.catalog.ranges import ceil, span
from tally.catalog.spec import Pipeline, Topic
from tally.control import seals
from tally.control.store import now_ms, store, upsert
from tally.control.tables import beginnings, begins

Partitions = dict[int, dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Missed:
    """Offsets [0, first) of a partition, which no layer ever read, and what is known of the records after them.

    Times are in milliseconds. `append_time`: the broker stamps records itself, so none is older than the one before.
    """

    topic: str
    partition: int
    first: int
    begun_at: int
    append_time: bool
    broker_time: int | None  # of the first record; None: not known, or there was none
    newest: int | None  # the newest broker or event time near the start

    def before(self, topic: Topic) -> int:
        """An event time that no missed record has: a proof with `append_time`, else as good as the declared lateness.

        A partition that was empty says nothing of its records but that they were older than the archive's beginning.
        """
        skew = millis(parse_duration(settings().skew, field="TALLY_SKEW"))
        if self.append_time and self.broker_time is not None:
            return self.broker_time + skew + 1
        known = [time for time in (self.broker_time, self.newest) if time is not None]
        return max(known or [self.begun_at]) + max(skew, millis(topic.lateness)) + 1

    def as_dict(self, topic: Topic) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offsets": [0, self.first],
            "events_before": iso(from_millis(self.before(topic))),
            "proven": self.append_time and self.broker_time is not None,
        }


@dataclass(frozen=True, kw_only=True)
class Said:
    """Where a person said that the numbers begin."""

    from_ms: int
    by: str
    why: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """A pipeline's beginning: windows that start before `at` (milliseconds, on the grid) are partial; None: none is."""

    missed: tuple[Missed, ...]
    whole_from: int | None  # what the topics say
    said: Said | None  # what a person said; it counts
    at: int | None

    def cuts(self, start: int) -> bool:
        """Whether a window that starts here may lack events."""
        return self.at is not None and start < self.at


def of(pipeline: Pipeline) -> Beginning:
    """The beginning of a pipeline, as far as its topics were archived."""
    topics = {topic.name: topic for topic in pipeline.reads}
    with store().connect() as connection:
        known = connection.execute(sa.select(beginnings).where(beginnings.c.topic.in_(topics))).all()
        word = connection.execute(newest_word(pipeline.name)).first()
    missed = [one for row in known for one in missed_of(row.topic, row.at, row.partitions)]
    step = millis(pipeline.window.step)
    needed = [one.before(topics[one.topic]) + reach(pipeline, one.topic) for one in missed]
    whole = ceil(max(needed), step) if needed else None
    said = Said(from_ms=word.from_ms, by=word.by, why=word.why, at=word.at) if word else None
    return Beginning(missed=tuple(missed), whole_from=whole, said=said, at=ceil(said.from_ms, step) if said else whole)


def reach(pipeline: Pipeline, topic: str) -> int:
    """How long after a missed event of a topic a window may start that it belongs in, or that it would change.

    A session may join one that began earlier; a second copy of a unique id counts only where the first was missed.
    """
    at = next(at for at, known in enumerate(pipeline.reads) if known.name == topic)
    back = span(pipeline, first=at == 0).before
    return (
        back + millis(pipeline.window.gap) + (millis(pipeline.reads[at].lateness) if pipeline.reads[at].unique else 0)
    )


def newest_word(pipeline: str) -> sa.Select[Any]:
    return sa.select(begins).where(begins.c.pipeline == pipeline).order_by(begins.c.id.desc()).limit(1)


def missed_of(topic: str, at: int, partitions: Mapping[str, Mapping[str, Any]]) -> list[Missed]:
    return [
        Missed(
            topic=topic, partition=int(partition), first=found["first"], begun_at=at,
            append_time=found["append_time"], broker_time=found["broker_time"], newest=found["newest"],
        )
        for partition, found in sorted(partitions.items(), key=lambda one: int(one[0]))
    ]  # fmt: skip


def known(topic: str) -> tuple[int, dict[str, Any]] | None:
    """What is kept of a topic's beginning, as the archive's words have it; None where it was never looked at."""
    with store().connect() as connection:
        row = connection.execute(sa.select(beginnings).where(beginnings.c.topic == topic)).first()
    if row is None:
        return None
    of_words = {p: {name: found[name] for name in found if name != "newest"} for p, found in row.partitions.items()}
    return int(row.at), of_words


def keep(topic: str, at: int, partitions: Partitions) -> None:
    """Keep what is known of a topic's beginning; idempotent by topic."""
    row = {"topic": topic, "at": at, "partitions": {str(number): found for number, found in partitions.items()}}
    with store().begin() as connection:
        upsert(connection, beginnings, [row])


def mark(pipeline: Pipeline) -> None:
    """Take the seals back that were put on windows before their beginning was known."""
    at = of(pipeline).at
    if at is not None:
        with store().begin() as connection:
            seals.begin_at(connection, pipeline.name, at)


def say(pipeline: Pipeline, from_ms: int, *, by: str, why: str) -> None:
    """Write down where a person says that the numbers begin, and put the slots on both sides into their states.

    In one transaction: a slot that was partial and is whole now would not be looked at again of itself.
    """
    row = {"pipeline": pipeline.name, "from_ms": from_ms, "by": by, "why": why, "at": now_ms()}
    with store().begin() as connection:
        connection.execute(sa.insert(begins).values(**row))
        seals.begin_at(connection, pipeline.name, ceil(from_ms, millis(pipeline.window.step)))
