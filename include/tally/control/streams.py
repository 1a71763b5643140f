"""The live state of streams and their drivers, and the state that people want them in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import sqlalchemy as sa

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.safe_text import LONGEST_REASON, is_text, quoted
from tally.control.store import now_ms, store, upsert
from tally.control.tables import desired, drivers, streams

# When the wish that is being written was asked for; None: now.
asked: ContextVar[int | None] = ContextVar("asked", default=None)


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


def launching(app: str, host: str, launcher: str, log: str) -> None:
    """Write, before it is spawned, that a driver is being launched; what is known of earlier deaths stays."""
    row = {
        "app": app, "host": host, "pid": 0, "created": 0.0, "launched_at": now_ms(), "heartbeat_at": now_ms(),
        "log": log, "launcher": launcher, "job": "",
    }  # fmt: skip
    with store().begin() as connection:
        upsert(connection, drivers, [row])


def launched(app: str, pid: int, created: float, job: str = "") -> None:
    """Write which process was spawned."""
    _of_driver(app, pid=pid, created=created, job=job)


def register_driver(app: str, host: str, pid: int, created: float, log: str) -> None:
    """Write, by the driver itself, which process hosts an app's queries; idempotent by app."""
    row = {
        "app": app, "host": host, "pid": pid, "created": created, "launched_at": now_ms(), "heartbeat_at": now_ms(),
        "log": log,
    }  # fmt: skip
    with store().begin() as connection:
        upsert(connection, drivers, [row])


def heartbeat(app: str) -> None:
    """Say that the app's driver lives."""
    _of_driver(app, heartbeat_at=now_ms())


def survived(app: str) -> None:
    """Say that a stream of the app made a commit under this driver: no death of an earlier one counts any more."""
    _of_driver(app, deaths=0, retry_at=0, last_words="")


def died(app: str, deaths: int, retry_at: int, last_words: str) -> None:
    """Count a driver's death, once: its process is no longer named."""
    _of_driver(app, pid=0, job="", deaths=deaths, retry_at=retry_at, last_words=last_words)


def driver_ended(app: str) -> None:
    """Say that the app's driver ended because it was told to: that is no death."""
    _of_driver(app, pid=0, job="", retry_at=0)


def _of_driver(app: str, **values: Any) -> None:
    with store().begin() as connection:
        connection.execute(sa.update(drivers).where(drivers.c.app == app).values(**values))


def driver(app: str) -> dict[str, Any] | None:
    """The driver that was last launched, or last registered, for an app."""
    with store().connect() as connection:
        row = connection.execute(sa.select(drivers).where(drivers.c.app == app)).first()
    return dict(row._mapping) if row else None


def check_reason(why: str) -> None:
    """Refuse what is no person's reason: it is kept for years, and shown in every line about the stream."""
    if len(why) > LONGEST_REASON or not is_text(why):
        raise TallyError(
            f"{quoted(why)} is no reason", field="why",
            cure=f"write at most {LONGEST_REASON:,} characters, in UTF-8 and without NUL",
        )  # fmt: skip


def want(pipeline: str, state: str, *, by: str, why: str) -> None:
    """Set the desired state of a stream: running, paused or stopped; idempotent by pipeline.

    A wish that was asked for before the one that stands is late, and refused: many may be on their way at once.
    """
    check_reason(why)
    at = asked.get()
    row = {"state": state, "by": by, "why": why, "at": now_ms() if at is None else at}
    mine = desired.c.pipeline == pipeline
    with store().begin() as connection:
        older = sa.true() if at is None else desired.c.at <= at
        # The update first: it takes the store's write lock, so that of two wishes the later one stays.
        if connection.execute(sa.update(desired).where(mine, older).values(**row)).rowcount:
            return
        standing = connection.execute(sa.select(desired).where(mine)).first()
        if standing is None:
            upsert(connection, desired, [{"pipeline": pipeline, **row}])
            return
    raise AnswerIsNo(
        f"a later wish stands: {standing.state}, by {standing.by or 'a person'} at {iso(from_millis(standing.at))}",
        pipeline=pipeline, cure="none, if that one is right; else wish for it again",
    )  # fmt: skip


@contextmanager
def asked_at(at: int | None) -> Iterator[None]:
    """Wishes that are written inside were asked for at an instant, in milliseconds."""
    token = asked.set(at)
    try:
        yield
    finally:
        asked.reset(token)


def want_anew(pipeline: str, *, by: str, why: str) -> int:
    """Wish for a stream to run, begun anew; which wish that is, counted from 1."""
    want(pipeline, "running", by=by, why=why)
    mine = desired.c.pipeline == pipeline
    with store().begin() as connection:
        connection.execute(sa.update(desired).where(mine).values(restarts=desired.c.restarts + 1))
        return int(connection.execute(sa.select(desired.c.restarts).where(mine)).scalar_one())


def wanted(pipeline: str) -> dict[str, Any]:
    """The desired state of a stream; running where nobody said otherwise."""
    return desired_states().get(pipeline) or {
        "pipeline": pipeline, "state": "running", "by": "", "why": "", "at": 0, "restarts": 0,
    }  # fmt: skip


def desired_states() -> dict[str, dict[str, Any]]:
    """The desired state of each stream of which somebody said one."""
    with store().connect() as connection:
        return {row.pipeline: dict(row._mapping) for row in connection.execute(sa.select(desired))}
