"""The state of each slot: sealed, partial, held or unsealed, with its revision and the digest of what was judged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tally.control.store import now_ms, store, upsert
from tally.control.tables import seals

# The states in which a slot's rows are those of its digest.
VOUCHED = ("sealed", "partial")
# Slots in one statement: well below the variables that any database takes, and 30,000 of them are 60 statements.
MANY = 500


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
    fault: str = ""  # what an audit found, until the slot is judged after a restatement


def read(pipeline: str, version: str, from_ms: int | None = None, to_ms: int | None = None) -> list[Seal]:
    """The judged slots that start in [from, to), in order."""
    query = sa.select(seals).where(seals.c.pipeline == pipeline, seals.c.version == version)
    if from_ms is not None:
        query = query.where(seals.c.slot_start >= from_ms)
    if to_ms is not None:
        query = query.where(seals.c.slot_start < to_ms)
    with store().connect() as connection:
        return [Seal(**row._mapping) for row in connection.execute(query.order_by(seals.c.slot_start))]


def following(pipeline: str, version: str, from_ms: int, most: int, to_ms: int | None = None) -> list[Seal]:
    """The first so many sealed or partial slots that start at an instant or later, and before another one, in order."""
    query = sa.select(seals).where(
        seals.c.pipeline == pipeline,
        seals.c.version == version,
        seals.c.state.in_(VOUCHED),
        seals.c.slot_start >= from_ms,
    )
    if to_ms is not None:
        query = query.where(seals.c.slot_start < to_ms)
    with store().connect() as connection:
        rows = connection.execute(query.order_by(seals.c.slot_start).limit(most))
        return [Seal(**row._mapping) for row in rows]


def meeting(pipeline: str, version: str, ranges: Sequence[tuple[int, int]]) -> list[Seal]:
    """The sealed or partial slots that have a part in the ranges, which are merged, in order."""
    if not ranges:
        return []
    starts, ends = zip(*ranges, strict=True)
    found = []
    for seal in read(pipeline, version, None, ends[-1]):
        at = bisect_right(ends, seal.slot_start)
        if seal.state in VOUCHED and at < len(ends) and starts[at] < seal.slot_end:
            found.append(seal)
    return found


def held_by(pipeline: str, version: str) -> set[int]:
    """The comparisons by which slots are now held; asked once a second, of a table that grows by one row a slot."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version) & (seals.c.state == "held")
    with store().connect() as connection:
        return set(connection.execute(sa.select(seals.c.reconciliation).where(mine).distinct()).scalars())


def doubted(pipeline: str, version: str) -> list[Seal]:
    """The slots that an audit found wrong and that no comparison sealed since, in order."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version) & (seals.c.fault != "")
    with store().connect() as connection:
        rows = connection.execute(sa.select(seals).where(mine).order_by(seals.c.slot_start))
        return [Seal(**row._mapping) for row in rows]


def judged_to(pipeline: str, version: str) -> int:
    """The end of the last slot that is sealed, partial or held; 0 where there is none."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version) & (seals.c.state != "unsealed")
    with store().connect() as connection:
        return int(connection.execute(sa.select(sa.func.max(seals.c.slot_end)).where(mine)).scalar() or 0)


def unsealed_since(pipeline: str, version: str, before_ms: int, at_ms: int) -> list[int]:
    """The slots, of those that start before a time, that were unsealed at an instant or earlier and still are."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version) & (seals.c.state == "unsealed")
    mine &= (seals.c.slot_start < before_ms) & (seals.c.changed_at <= at_ms)
    with store().connect() as connection:
        return list(
            connection.execute(sa.select(seals.c.slot_start).where(mine).order_by(seals.c.slot_start)).scalars()
        )


def write(rows: Iterable[Seal]) -> None:
    """Put slots into their states; idempotent by (pipeline, version, slot_start)."""
    with store().begin() as connection:
        upsert(connection, seals, [asdict(row) for row in rows])


def unseal(pipeline: str, version: str, ranges: Iterable[tuple[int, int]]) -> int:
    """Mark judged slots that start in the ranges as unsealed, before their rows are restated; the count of them.

    An unsealed slot keeps the digest that was sealed last: rows that come out the same get their revision back.
    """
    wanted = sorted(one for one in ranges if one[0] < one[1])
    if not wanted:
        return 0
    starts, reach, reached = [start for start, _ in wanted], [], wanted[0][1]
    for _, end in wanted:
        reached = max(reached, end)
        reach.append(reached)
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version) & (seals.c.state != "unsealed")
    query = sa.select(seals.c.slot_start).where(mine, seals.c.slot_start >= starts[0], seals.c.slot_start < reached)
    with store().connect() as connection:
        there = connection.execute(query).scalars().all()
    # Past the last range that begins at or before it, an earlier and longer one may still hold a slot.
    inside = [slot for slot in there if slot < reach[bisect_right(starts, slot) - 1]]
    changed = 0
    with store().begin() as connection:
        for at in range(0, len(inside), MANY):
            some = mine & seals.c.slot_start.in_(inside[at : at + MANY])
            changed += connection.execute(sa.update(seals).where(some).values(**unsealed())).rowcount
    return changed


def unsealed() -> dict[str, Any]:
    """What becomes of a slot whose rows are to be stated again; only a digest that was sealed is kept."""
    kept = sa.case((seals.c.state == "sealed", seals.c.digest), else_="")
    return {"state": "unsealed", "digest": kept, "changed_at": now_ms()}


def begin_at(connection: Connection, pipeline: str, at: int) -> None:
    """Let every version's numbers begin at an instant: what was sealed before it is partial, what was not is due."""
    mine = seals.c.pipeline == pipeline
    before = mine & (seals.c.state == "sealed") & (seals.c.slot_start < at)
    after = mine & (seals.c.state == "partial") & (seals.c.slot_start >= at)
    connection.execute(sa.update(seals).where(before).values(state="partial", changed_at=now_ms()))
    connection.execute(sa.update(seals).where(after).values(**unsealed()))


def sealed_to(pipeline: str, version: str) -> int | None:
    """The end of the unbroken run of sealed slots that begins at the first judged one that is not partial."""
    mine = (seals.c.pipeline == pipeline) & (seals.c.version == version)
    first_whole = sa.select(sa.func.min(seals.c.slot_start)).where(mine, seals.c.state != "partial").scalar_subquery()
    mine &= seals.c.slot_start >= first_whole
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
