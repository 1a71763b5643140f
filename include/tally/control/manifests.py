"""What archive commits said that they wrote, copied from their words, to be found by the times that they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from tally.control.store import store, upsert
from tally.control.tables import ingests, manifests


class Claim(NamedTuple):
    """Which rows of a table one commit answers for, and between which times they lie."""

    seq: int
    baseline: bool  # it answers for the rows of all ingests up to its own
    contract: str
    delta_version: int
    from_ms: int
    to_ms: int


def record(claims: Sequence[dict[str, Any]], counts: Sequence[dict[str, Any]]) -> None:
    """Write what commits say, in one step; idempotent by (topic, place, era, seq) and (topic, seq)."""
    with store().begin() as connection:
        upsert(connection, manifests, claims)
        upsert(connection, ingests, counts)


def recount(topic: str, archived: dict[int, int], quarantined: dict[int, dict[str, int]], seq: int) -> None:
    """Write how many records of each ingest up to one are where, since all were decoded again."""
    with store().begin() as connection:
        known = connection.execute(sa.select(ingests.c.seq).where(ingests.c.topic == topic, ingests.c.seq <= seq))
        for (number,) in known.all():
            connection.execute(
                sa.update(ingests)
                .where(ingests.c.topic == topic, ingests.c.seq == number)
                .values(archived=archived.get(number, 0), quarantined=quarantined.get(number, {}))
            )


def forget(topic: str, before: int) -> None:
    """Drop what is known of ingests into an archive that is there no more."""
    with store().begin() as connection:
        connection.execute(sa.delete(ingests).where(ingests.c.topic == topic, ingests.c.seq < before))
        connection.execute(sa.delete(manifests).where(manifests.c.topic == topic, manifests.c.seq < before))


def places(topic: str) -> set[tuple[int, int]]:
    """The (era, seq) of every archive commit that is known."""
    query = sa.select(manifests.c.era, manifests.c.seq).where(
        manifests.c.topic == topic, manifests.c.place == "archive"
    )
    with store().connect() as connection:
        return {(era, seq) for era, seq in connection.execute(query)}


def claims(topic: str, place: str, era: int, through: int) -> list[Claim]:
    """What is claimed of a table's rows up to an ingest, oldest first, without the cells."""
    columns = [manifests.c[name] for name in Claim._fields]
    query = sa.select(*columns).where(
        manifests.c.topic == topic, manifests.c.place == place, manifests.c.era == era, manifests.c.seq <= through
    )
    with store().connect() as connection:
        return [Claim(*row) for row in connection.execute(query.order_by(manifests.c.seq))]


def bodies(topic: str, place: str, era: int, seqs: Collection[int]) -> dict[int, dict[str, Any]]:
    """The cells of some of them, by ingest."""
    found: dict[int, dict[str, Any]] = {}
    wanted = sorted(seqs)
    with store().connect() as connection:
        for at in range(0, len(wanted), 500):
            query = sa.select(manifests.c.seq, manifests.c.body).where(
                manifests.c.topic == topic,
                manifests.c.place == place,
                manifests.c.era == era,
                manifests.c.seq.in_(wanted[at : at + 500]),
            )
            found |= {seq: body for seq, body in connection.execute(query)}
    return found


def era_at(topic: str, version: int) -> int:
    """How often all of a topic was decoded again in its archive's Delta version."""
    query = sa.select(sa.func.max(manifests.c.era)).where(
        manifests.c.topic == topic, manifests.c.place == "archive", manifests.c.delta_version <= version
    )
    with store().connect() as connection:
        return int(connection.execute(query).scalar() or 0)
