"""What went wrong, once a pipeline and cause: from when to when, how often, what was done, and whether it is over.

An incident without a pipeline is one of the whole installation, such as a watcher that is silent.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tally.base.duration import from_millis, iso
from tally.control.store import now_ms, store
from tally.control.tables import incidents

# What happens to a driver, and is over once a new one's streams move.
DRIVER_FAULTS = DRIVER_DIED, DRIVER_HUNG = "driver died", "driver hung"


def report(pipeline: str, cause: str, evidence: str, *, cure: str = "", done: str = "") -> int:
    """Open an incident, or count the open one of the same pipeline and cause once more; its number."""
    same = (incidents.c.pipeline == pipeline) & (incidents.c.cause == cause) & incidents.c.closed_at.is_(None)
    told = {"evidence": evidence, "cure": cure, "last_seen": now_ms(), **({"done": done} if done else {})}
    with store().begin() as connection:
        # The update first: it takes the store's write lock, so that of two who report at once one counts the other's.
        again = sa.update(incidents).where(same).values(**told, times=incidents.c.times + 1)
        if connection.execute(again).rowcount:
            return int(connection.execute(sa.select(sa.func.min(incidents.c.id)).where(same)).scalar_one())
        new = sa.insert(incidents).values(pipeline=pipeline, cause=cause, first_seen=now_ms(), times=1, **told)
        return int(connection.execute(new).inserted_primary_key[0])  # type: ignore[index]


def close(pipeline: str, *causes: str, done: str = "") -> int:
    """Close the open incidents of a pipeline and these causes: what they told of is over; the count of them."""
    over = {"closed_at": now_ms(), **({"done": done} if done else {})}
    mine = (incidents.c.pipeline == pipeline) & incidents.c.cause.in_(causes) & incidents.c.closed_at.is_(None)
    with store().begin() as connection:
        return connection.execute(sa.update(incidents).where(mine).values(**over)).rowcount


def opened(pipeline: str | None = None) -> list[dict[str, Any]]:
    """Every incident that is not closed, in the order in which they were first seen."""
    return found(incidents.c.closed_at.is_(None), pipeline)


def history(pipeline: str | None = None) -> list[dict[str, Any]]:
    """Every incident there was."""
    return found(sa.true(), pipeline)


def found(which: Any, pipeline: str | None) -> list[dict[str, Any]]:
    mine = incidents.c.pipeline == pipeline if pipeline is not None else sa.true()
    with store().connect() as connection:
        rows = connection.execute(sa.select(incidents).where(which, mine).order_by(incidents.c.id))
        return [dict(row._mapping) for row in rows]


def document(row: dict[str, Any]) -> dict[str, Any]:
    """An incident as scripts read it: its state, and times in ISO 8601, null where there was no such time."""
    times = ("first_seen", "last_seen", "closed_at", "told_at", "told_closed_at")
    told = {name: iso(from_millis(row[name])) if row[name] else None for name in times}
    return {"id": row["id"], "state": "closed" if row["closed_at"] else "open", **row, **told}
