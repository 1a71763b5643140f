"""How far the audit of sealed windows is: where its next part begins, and which commits of the batch table it saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tally.control.store import now_ms, store, upsert
from tally.control.tables import audits


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an audit goes on: the slot start that the next part begins at, and the table's last version looked at."""

    slot: int = -(1 << 62)
    seen_version: int = -1


def place(pipeline: str, version: str) -> Place:
    """Where the audit of a pipeline's version goes on; from the very start where there was none."""
    query = sa.select(audits).where(audits.c.pipeline == pipeline, audits.c.version == version)
    with store().connect() as connection:
        row = connection.execute(query).first()
    return Place(slot=row.place, seen_version=row.seen_version) if row else Place()


def went_on(pipeline: str, version: str, **changed: Any) -> None:
    """Remember how far an audit came: `place`, `seen_version`; idempotent by (pipeline, version)."""
    mine = (audits.c.pipeline == pipeline) & (audits.c.version == version)
    with store().begin() as connection:
        if not connection.execute(sa.update(audits).where(mine).values(**changed, at=now_ms())).rowcount:
            known = Place()
            row = {"place": known.slot, "seen_version": known.seen_version, **changed, "at": now_ms()}
            upsert(connection, audits, [{"pipeline": pipeline, "version": version, **row}])
