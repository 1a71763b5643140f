"""The state of each slot: sealed, held or unsealed, with its revision and the digest of what was judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import sqlalchemy as sa

from tally.control.store import now_ms, store, upsert
from tally.control.tables import seals


@dataclass(frozen=True, kw_only=True)
class Seal:
    """One slot's state; a revision counts how often the slot was sealed with other rows than before."""

    pipeline: str
    version: str
    slot_start: int
    slot_end: int
    state: str
    revision: int
    digest: str
    rows: int
    reconciliation: int
    changed_at: int
    explained: int = 0


def read(pipeline: str, version: str, from_ms: int | None = None, to_ms: int | None = None) -> list[Seal]:
    """The judged slots that start in [from, to), in order."""
    query = sa.select(seals).where(seals.c.pipeline == pipeline, seals.c.version == version)
    if from_ms is not None:
        query = query.where(seals.c.slot_start >= from_ms)
    if to_ms is not None:
        query = query.where(seals.c.slot_start < to_ms)
    with store().connect() as connection:
        return [Seal(**row._mapping) for row in connection.execute(query.order_by(seals.c.slot_start))]


def held_by(pipeline: str, version: str) -> set[int]:
    """The comparisons by which slots are now held; asked once a second, of a table that grows by one row a slot."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version) & (seals.c.state == "held")
    with store().connect() as connection:
        return set(connection.execute(sa.select(seals.c.reconciliation).where(mine).distinct()).scalars())


def write(rows: Iterable[Seal]) -> None:
    """Put slots into their states; idempotent by (pipeline, version, slot_start)."""
    with store().begin() as connection:
        upsert(connection, seals, [asdict(row) for row in rows])


def unseal(pipeline: str, version: str, ranges: Iterable[tuple[int, int]]) -> int:
    """Mark sealed and held slots of the ranges as unsealed, before their rows are restated; the count of them.

    An unsealed slot keeps the digest that was sealed last: rows that come out the same get their revision back.
    """
    changed = 0
    with store().begin() as connection:
        for start, end in ranges:
            changed += connection.execute(
                sa.update(seals)
                .where(seals.c.pipeline == pipeline, seals.c.version == version, seals.c.state != "unsealed")
                .where(seals.c.slot_start >= start, seals.c.slot_start < end)
                .values(
                    state="unsealed",
                    digest=sa.case((seals.c.state == "held", ""), else_=seals.c.digest),
                    changed_at=now_ms(),
                )
            ).rowcount
    return changed


def sealed_to(pipeline: str, version: str) -> int | None:
    """The end of the unbroken run of sealed slots that begins at the first judged one; None where there is none."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version)
    before = sa.func.lag(seals.c.slot_end).over(order_by=seals.c.slot_start)
    slots = sa.select(seals.c.slot_start, seals.c.state, before.label("before")).where(mine).subquery()
    broken = sa.select(sa.func.min(slots.c.slot_start)).where(
        (slots.c.state != "sealed") | (slots.c.before != slots.c.slot_start)
    )
    with store().connect() as connection:
        first = connection.execute(broken).scalar()
        run = mine if first is None else mine & (seals.c.slot_start < first)
        return connection.execute(sa.select(sa.func.max(seals.c.slot_end)).where(run)).scalar()


def explained(pipeline: str, version: str) -> int:
    """How many events the layers differ by, and a cause is known of, over all judged slots."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version)
    with store().connect() as connection:
        return int(connection.execute(sa.select(sa.func.sum(seals.c.explained)).where(mine)).scalar() or 0)


def counts(pipeline: str, version: str) -> dict[str, int]:
    """How many slots are in each state."""
    query = (
        sa.select(seals.c.state, sa.func.count())
        .where(seals.c.pipeline == pipeline, seals.c.version == version)
        .group_by(seals.c.state)
    )
    with store().connect() as connection:
        return {state: int(number) for state, number in connection.execute(query)}
