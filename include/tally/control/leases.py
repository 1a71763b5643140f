"""Who alone may write a table, where several machines could: a lease with an epoch, which every commit checks.

The kernel's lock sees to it on one machine. A lease reaches over machines: its holder beats, and another takes it only
when it has seen no beat for a while on its own clock, or knows the holder to be gone. No clocks are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control.store import store
from tally.control.tables import leases
from tally.host.process import ended, place, since_boot
from tally.host.waiting import until

# A holder beats every two seconds. Ten missed beats are no slow disk and no pause of its JVM; a driver that hangs
# longer is ended by its own machine's supervisor at about the same time. Longer, and the table has no writer for long.
SILENCE_SECONDS = 20.0
POLL = 1.0
# By lease: the holder with its newest beat, and since when this process has heard no other.
heard: dict[str, tuple[tuple[object, ...], float]] = {}


class Fenced(AnswerIsNo):
    """Another driver has taken the table over: whoever meets this writes nothing any more."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A taken lease; `sure` says that its former holder is known to be gone, and not only silent."""

    name: str
    epoch: int
    sure: bool


def name_of(pipeline: Pipeline) -> str:
    """The lease on a pipeline's speed table."""
    return f"speed/{pipeline.name}/{pipeline.version}"


def name_of_inbox(topic: str) -> str:
    """The lease on the inbox of a topic, and so on the stream that feeds it."""
    return f"inbox/{topic}"


def listen(names: Iterable[str]) -> None:
    """Begin to listen to several holders at once: who takes one later has waited for all of them meanwhile."""
    for name in names:
        row = _row(name)
        if row is not None and row.held:
            silent_since(row)


def silent_since(row: sa.Row[tuple[object, ...]]) -> float:
    """When this process first saw a holder's newest beat, by the clock that never jumps."""
    name, newest = str(row.name), (row.epoch, row.beats, row.host, row.pid, row.created)
    if name not in heard or heard[name][0] != newest:
        heard[name] = newest, time.monotonic()
    return heard[name][1]


def take(name: str, *, silence: float = SILENCE_SECONDS) -> Lease:
    """Take the lease; AnswerIsNo that names the holder when it beats. May wait as long as a silence must be."""
    row = _row(name)
    if row is None:
        try:
            with store().begin() as connection:
                connection.execute(sa.insert(leases).values(name=name, epoch=1, beats=0, held=True, **_me()))
            return Lease(name=name, epoch=1, sure=True)
        except IntegrityError:  # another came first
            row = _row(name)
            assert row is not None
    sure = not row.held or gone(row)  # who calls holds the kernel's lock: no other process of its home writes
    left = silent_since(row) + silence - time.monotonic()
    if not sure and until(lambda: _has_moved(row), seconds=left, every=POLL):
        raise TallyError(
            f"is written by process {row.pid} on {row.host}", field=name,
            cure="stop that driver first, or leave the stream to it",
        )  # fmt: skip
    mine = (leases.c.name == name) & (leases.c.epoch == row.epoch) & (leases.c.beats == row.beats)
    with store().begin() as connection:
        values = {"epoch": row.epoch + 1, "beats": 0, "held": True, **_me()}
        if not connection.execute(sa.update(leases).where(mine).values(**values)).rowcount:
            raise TallyError("was taken by another driver just now", field=name, cure="leave the stream to it")
    return Lease(name=name, epoch=row.epoch + 1, sure=sure)


def beat(lease: Lease) -> bool:
    """Say that the holder lives; False when another has taken the lease."""
    with store().begin() as connection:
        alive = sa.update(leases).where(*_is(lease)).values(beats=leases.c.beats + 1)
        return bool(connection.execute(alive).rowcount)


def check(lease: Lease) -> None:
    """Raise Fenced unless the lease is still this one."""
    for fenced in lost([lease]).values():
        raise fenced


def lost(held: Iterable[Lease]) -> dict[str, Fenced]:
    """By its name, each of these leases that is another's now, and what is to be said of it; asked once for all."""
    mine = {lease.name: lease for lease in held}
    with store().connect() as connection:
        found = connection.execute(sa.select(leases).where(leases.c.name.in_(mine)))
        now = {str(row.name): row for row in found}
    gone = [name for name, lease in mine.items() if not still(lease, now.get(name))]
    return {name: fenced(name, now.get(name)) for name in gone}


def still(lease: Lease, row: sa.Row[tuple[object, ...]] | None) -> bool:
    return row is not None and (row.epoch, row.held) == (lease.epoch, True)


def fenced(name: str, row: sa.Row[tuple[object, ...]] | None) -> Fenced:
    who = f"process {row.pid} on {row.host}" if row is not None else "another driver"
    return Fenced(f"{who} writes this table now: nothing was written", field=name, cure="leave it the stream")


def release(lease: Lease) -> None:
    """Let go, if it is still held; doing so again changes nothing."""
    with store().begin() as connection:
        connection.execute(sa.update(leases).where(*_is(lease)).values(held=False))


def gone(row: sa.Row[tuple[object, ...]]) -> bool:
    """Whether a holder was a process of this machine that has ended.

    A pod that is made anew bears the name of the one before, which may still write on a machine that was cut off.
    """
    if (row.host, row.place) != (settings().host_name, place()):
        return False
    try:
        process = psutil.Process(int(row.pid))
        if process.pid == psutil.Process().pid:
            return True
        return since_boot(process) != float(row.created) or ended(process)
    except psutil.Error:
        return True


def _row(name: str) -> sa.Row[tuple[object, ...]] | None:
    with store().connect() as connection:
        return connection.execute(sa.select(leases).where(leases.c.name == name)).first()


def _has_moved(row: sa.Row[tuple[object, ...]]) -> bool:
    """Whether the holder has beaten, or another has taken the lease, since a row was read."""
    now = _row(str(row.name))
    return now is None or (now.epoch, now.beats) != (row.epoch, row.beats)


def _is(lease: Lease) -> tuple[sa.ColumnElement[bool], ...]:
    return leases.c.name == lease.name, leases.c.epoch == lease.epoch, leases.c.held.is_(True)


def _me() -> dict[str, object]:
    me = psutil.Process()
    return {"host": settings().host_name, "place": place(), "pid": me.pid, "created": since_boot(me)}
