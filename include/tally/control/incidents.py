"""What went wrong, once a pipeline and cause: from when to when, how often, what was done, and whether it is over.

An incident without a pipeline is one of the whole installation, such as a watcher that is silent.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa

from tally.base.duration import from_millis, iso
from tally.control.store import now_ms, store
from tally.control.tables import incidents

# What happens to a driver, and is over once a new one's streams move.
DRIVER_FAULTS = DRIVER_DIED, DRIVER_HUNG = "driver died", "driver hung"

State = Literal["open", "closed"]


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One that was reported; times in milliseconds, 0 or None where there was no such time yet."""

    id: int
    pipeline: str
    cause: str
    evidence: str
    cure: str
    done: str
    first_seen: int
    last_seen: int
    times: int
    closed_at: int | None
    told_at: int
    told_closed_at: int

    @property
    def state(self) -> State:
        return "closed" if self.closed_at else "open"

    def as_json(self) -> dict[str, Any]:
        """As scripts read it: its state, and times in ISO 8601, null where there was no such time."""
        times = ("first_seen", "last_seen", "closed_at", "told_at", "told_closed_at")
        told = {name: iso(from_millis(at)) if (at := getattr(self, name)) else None for name in times}
        return {"id": self.id, "state": self.state, **asdict(self), **told}


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


def opened(pipeline: str | None = None) -> list[Incident]:
    """Every incident that is not closed, in the order in which they were first seen."""
    return found(incidents.c.closed_at.is_(None), pipeline)


def history(pipeline: str | None = None) -> list[Incident]:
    """Every incident there was."""
    return found(sa.true(), pipeline)


def found(which: Any, pipeline: str | None) -> list[Incident]:
    mine = incidents.c.pipeline == pipeline if pipeline is not None else sa.true()
    with store().connect() as connection:
        rows = connection.execute(sa.select(incidents).where(which, mine).order_by(incidents.c.id))
        return [Incident(**row._mapping) for row in rows]
