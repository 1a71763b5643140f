"""What batch jobs did: archive commits, how far they came, reconciliations, and which Kafka topic a name means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tally.control.store import now_ms, store, upsert
from tally.control.tables import ingests, reached, reconciliations, seals, topics


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """A row of the ingests: what one archive commit took, by partition in half-open offsets, and what became of it."""

    topic: str
    seq: int
    ranges: Mapping[int, tuple[int, int]]
    archived: int
    quarantined: Mapping[str, int]  # by reason
    gaps: int
    delta_version: int
    committed_at: int


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """A row of the reconciliations: whose windows were compared, how far it is, and what it found, as JSON."""

    id: int
    pipeline: str
    version: str
    from_ms: int
    to_ms: int
    at: int
    summary: dict[str, Any]
    slots: list[dict[str, Any]]
    verdict: str  # comparing | compared | reconciled | held
    data_docs: str


def topic_id(topic: str) -> str | None:
    """The id that the topic had when Tally first read it."""
    with store().connect() as connection:
        return connection.execute(sa.select(topics.c.topic_id).where(topics.c.topic == topic)).scalar()


def remember_topic(topic: str, identity: str) -> None:
    """Bind a topic's name to its id; idempotent by name."""
    with store().begin() as connection:
        upsert(connection, topics, [{"topic": topic, "topic_id": identity, "seen_at": now_ms()}])


def ingest_history(topic: str) -> list[Ingested]:
    """Every archive commit of a topic, in order."""
    query = sa.select(ingests).where(ingests.c.topic == topic).order_by(ingests.c.seq)
    with store().connect() as connection:
        return [ingested(row) for row in connection.execute(query)]


def note_reached(topic: str, moment: int) -> None:
    """Say that the archive holds all that Kafka held at a moment (ms); idempotent by topic, the newest run counts.

    A clock that is set back takes it back too: who waits does so once more, and nothing is believed for its future.
    """
    with store().begin() as connection:
        upsert(connection, reached, [{"topic": topic, "moment": moment}])


def forget_reached(topic: str) -> None:
    """Take it back: an archive that is begun anew holds nothing yet."""
    with store().begin() as connection:
        connection.execute(sa.delete(reached).where(reached.c.topic == topic))


def reached_by_topic() -> dict[str, int]:
    """Up to which moment (ms) each archive holds all that Kafka held; one that never came to its end is left out."""
    with store().connect() as connection:
        return {str(row.topic): int(row.moment) for row in connection.execute(sa.select(reached))}


def ingested(row: sa.Row[Any]) -> Ingested:
    ranges = {int(partition): (first, to) for partition, (first, to) in row.ranges.items()}
    return Ingested(**{**row._mapping, "ranges": ranges})


def open_reconciliation(pipeline: str, version: str, from_ms: int, to_ms: int, ticket: str, *, after: int = 0) -> int:
    """Begin a comparison; the new row's id, larger than `after`."""
    with store().begin() as connection:
        newest = connection.execute(sa.select(sa.func.max(reconciliations.c.id))).scalar() or 0
        own = {"id": after + 1} if newest < after else {}
        statement = sa.insert(reconciliations).values(
            **own, pipeline=pipeline, version=version, from_ms=from_ms, to_ms=to_ms, at=now_ms(), slots=[],
            summary={"ticket": ticket}, verdict="comparing", data_docs="",
        )  # fmt: skip
        return int(connection.execute(statement).inserted_primary_key[0])  # type: ignore[index]


def keep_comparison(number: int, summary: dict[str, Any], slots: list[dict[str, Any]]) -> None:
    """Keep what a comparison found, not yet judged."""
    with store().begin() as connection:
        connection.execute(
            sa.update(reconciliations)
            .where(reconciliations.c.id == number)
            .values(verdict="compared", summary=summary, slots=slots)
        )


def withdraw(number: int) -> None:
    """Take back a comparison that was begun and found nothing: no row anywhere bears its id."""
    mine = (reconciliations.c.id == number) & (reconciliations.c.verdict == "comparing")
    with store().begin() as connection:
        connection.execute(sa.delete(reconciliations).where(mine))


def judge_reconciliation(number: int, verdict: str, data_docs: str, summary: dict[str, Any]) -> None:
    """Write the verdict of a comparison and the path of its Data Docs."""
    with store().begin() as connection:
        connection.execute(
            sa.update(reconciliations)
            .where(reconciliations.c.id == number)
            .values(verdict=verdict, data_docs=data_docs, summary=summary)
        )


def reconciliation(number: int) -> Reconciliation | None:
    """One comparison by its id."""
    return next(rows(sa.select(reconciliations).where(reconciliations.c.id == number)), None)


def archives(numbers: Iterable[int]) -> dict[int, dict[str, int]]:
    """By comparison, the last ingest of each topic that it knew; those of an older store are left out."""
    found: dict[int, dict[str, int]] = {}
    wanted = sorted(set(numbers))
    with store().connect() as connection:
        for at in range(0, len(wanted), 500):
            some = reconciliations.c.id.in_(wanted[at : at + 500])
            rows = connection.execute(sa.select(reconciliations.c.id, reconciliations.c.summary).where(some))
            found |= {row.id: row.summary["archive"] for row in rows if "archive" in row.summary}
    return found


def newest_summary(pipeline: str, version: str) -> dict[str, Any] | None:
    """What the newest comparison of a pipeline's version that came to its end said of itself."""
    mine = (reconciliations.c.pipeline == pipeline) & (reconciliations.c.version == version)
    query = sa.select(reconciliations.c.summary).where(mine, reconciliations.c.verdict != "comparing")
    with store().connect() as connection:
        found: dict[str, Any] | None = connection.execute(query.order_by(reconciliations.c.id.desc()).limit(1)).scalar()
    return found


def by_ticket(ticket: str) -> list[Reconciliation]:
    """The comparisons that one job run under this ticket left, oldest first; a repeated job leaves its newest last."""
    query = sa.select(reconciliations).where(reconciliations.c.summary["ticket"].as_string() == ticket)
    return list(rows(query.order_by(reconciliations.c.id)))


def reconciliation_history(pipeline: str, limit: int = 20) -> list[Reconciliation]:
    """The newest comparisons of a pipeline, newest first."""
    query = sa.select(reconciliations).where(reconciliations.c.pipeline == pipeline)
    return list(rows(query.order_by(reconciliations.c.id.desc()).limit(limit)))


def rows(query: sa.Select[Any]) -> Iterator[Reconciliation]:
    with store().connect() as connection:
        yield from [Reconciliation(**row._mapping) for row in connection.execute(query)]


def prune_reconciliations(before_ms: int) -> int:
    """Drop comparisons made before a time that no slot's state rests on; the count of them."""
    used = sa.select(seals.c.reconciliation)
    with store().begin() as connection:
        return connection.execute(
            sa.delete(reconciliations).where(reconciliations.c.at < before_ms, reconciliations.c.id.not_in(used))
        ).rowcount
