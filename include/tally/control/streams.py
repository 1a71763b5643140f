"""The live state of streams and their drivers, and the state that people want them in."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tally.control.store import now_ms, store, upsert
from tally.control.tables import desired, drivers, streams


def show(pipeline: str, **values: Any) -> None:
    """Write what a stream's driver knows of it; only the given columns change, by pipeline."""
    with store().begin() as connection:
        changed = connection.execute(
            sa.update(streams).where(streams.c.pipeline == pipeline).values(**values, updated_at=now_ms())
        ).rowcount
        if not changed:
            row = {"version": "", "generation": 0, "app": "", "state": "starting", **values}
            upsert(connection, streams, [{"pipeline": pipeline, **row, "updated_at": now_ms()}])


def stream(pipeline: str) -> dict[str, Any] | None:
    """What was last written of a stream."""
    with store().connect() as connection:
        row = connection.execute(sa.select(streams).where(streams.c.pipeline == pipeline)).first()
    return dict(row._mapping) if row else None


def register_driver(app: str, host: str, pid: int, created: float, log: str) -> None:
    """Write which process hosts an app's queries; idempotent by app."""
    row = {
        "app": app,
        "host": host,
        "pid": pid,
        "created": created,
        "launched_at": now_ms(),
        "heartbeat_at": now_ms(),
        "log": log,
    }
    with store().begin() as connection:
        upsert(connection, drivers, [row])


def heartbeat(app: str) -> None:
    """Say that the app's driver lives."""
    with store().begin() as connection:
        connection.execute(sa.update(drivers).where(drivers.c.app == app).values(heartbeat_at=now_ms()))


def driver(app: str) -> dict[str, Any] | None:
    """The driver that last registered for an app."""
    with store().connect() as connection:
        row = connection.execute(sa.select(drivers).where(drivers.c.app == app)).first()
    return dict(row._mapping) if row else None


def want(pipeline: str, state: str, *, by: str, why: str) -> None:
    """Set the desired state of a stream: running or paused; idempotent by pipeline."""
    with store().begin() as connection:
        upsert(connection, desired, [{"pipeline": pipeline, "state": state, "by": by, "why": why, "at": now_ms()}])


def wanted(pipeline: str) -> dict[str, Any]:
    """The desired state of a stream; running where nobody said otherwise."""
    with store().connect() as connection:
        row = connection.execute(sa.select(desired).where(desired.c.pipeline == pipeline)).first()
    return dict(row._mapping) if row else {"pipeline": pipeline, "state": "running", "by": "", "why": "", "at": 0}
