"""Looks at an app's driver once a second and says when it needs something; it never does anything itself.

It measures silence on its own clock, from the last beat that it saw, so a wall clock that jumps ends no driver.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import sqlalchemy as sa

from tally.base.settings import settings
from tally.control import incidents
from tally.control.notices import untold
from tally.control.store import now_ms, store, upsert
from tally.control.streams import driver
from tally.control.tables import watchers
from tally.host.driver_files import APP
from tally.supervise.policy import Step, decide, look

LOOK_SECONDS = 1.0
# An order may be lost on its way to a run: it is given again for as long as there is need.
AGAIN_SECONDS = 20.0
# A receiver that is down is not asked more often than this; the clock's runs ask it too.
TELL_AGAIN_SECONDS = 120.0
SIGN_SECONDS = 5.0
# A watcher that said nothing for so long is taken for dead; the slow clock then says so.
WATCHER_SILENCE_MS = 30_000
NO_WATCHER = "no watcher"
# A run comes within seconds, and a start takes ten: four orders later nobody follows them, and people must know.
UNHEEDED_SECONDS = 90.0
UNHEEDED = "nobody follows the watcher"


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Who last watched, and how long ago."""

    host: str
    pid: int
    silent: int
    saw: str

    @property
    def alive(self) -> bool:
        return self.silent < WATCHER_SILENCE_MS


class Watch:
    """One watcher's memory: since when the driver is silent, what was last ordered, when it last signed."""

    def __init__(self, name: str = "streams", app: str = APP, tell: Callable[[], object] = lambda: None) -> None:
        self.name, self.app, self.tell = name, app, tell
        self.beat: tuple[int, int] | None = None
        self.beat_seen = self.signed_at = self.ordered_at = float("-inf")
        self.ordered = ""
        self.needed_since: float | None = None
        self.unheeded = False

    def turn(self) -> Step | None:
        """One look; a step when it is to be ordered now: once when the need arises, then again while it lasts."""
        step = self.needed()
        now = time.monotonic()
        self.heeded(step, now)
        if now - self.signed_at >= SIGN_SECONDS:
            sign(self.name, step.saw)
            self.signed_at = now
            if step.kind == "nothing" and self.news():
                step = Step(kind="tell", saw="people are to be told of an incident")
        if step.kind == "nothing":
            if self.ordered != "tell":
                self.ordered = ""
            return None
        again = TELL_AGAIN_SECONDS if step.kind == "tell" else AGAIN_SECONDS
        if step.kind == self.ordered and now - self.ordered_at < again:
            return None
        self.ordered, self.ordered_at = step.kind, now
        return step

    def heeded(self, step: Step, now: float) -> None:
        """Tell people once where an order is not followed: who would follow it is who else would tell them."""
        if step.kind not in ("start", "replace"):
            self.needed_since = None
            if self.unheeded:
                incidents.close("", UNHEEDED, done="its order was followed")
            self.unheeded = False
            return
        self.needed_since = now if self.needed_since is None else self.needed_since
        if now - self.needed_since > UNHEEDED_SECONDS and not self.unheeded:
            self.unheeded = True
            since = f"for {now - self.needed_since:.0f} s no run of the streams DAG has seen to it"
            incidents.report(
                "", UNHEEDED, f"{step.saw}; {since}",
                cure="is Airflow's scheduler up, and the DAG not paused? Meanwhile, by hand: tally restart PIPELINE",
            )  # fmt: skip
            self.tell()

    def news(self) -> bool:
        """Whether there is somebody to tell, and something that not all of them have heard."""
        return bool(settings().webhook or settings().notifiers) and bool(untold())

    def needed(self) -> Step:
        """What the driver needs, by this watcher's own clock."""
        seen, row, now = look(self.app), driver(self.app), time.monotonic()
        if row is None:
            return decide(seen)
        beat = int(row["pid"]), int(row["heartbeat_at"])
        if beat != self.beat:
            self.beat, self.beat_seen = beat, now
        silent = int((now - self.beat_seen) * 1000)
        return decide(replace(seen, silent=silent, age=None if seen.lives else seen.age))


def sign(name: str, saw: str) -> None:
    """Say that the watcher lives, and what it saw; idempotent by name."""
    row = {"name": name, "host": settings().host_name, "pid": os.getpid(), "beat_at": now_ms(), "saw": saw}
    with store().begin() as connection:
        upsert(connection, watchers, [row])


def watcher(name: str = "streams") -> Watcher | None:
    """Who last watched; None where nobody ever did."""
    with store().connect() as connection:
        row = connection.execute(sa.select(watchers).where(watchers.c.name == name)).first()
    if row is None:
        return None
    return Watcher(host=row.host, pid=row.pid, silent=max(0, now_ms() - row.beat_at), saw=row.saw)


def is_watched(name: str = "streams") -> bool:
    """Whether somebody looks, and will order again when it is time."""
    last = watcher(name)
    return last is not None and last.alive


def check_watcher(name: str = "streams") -> str:
    """Whether somebody watches, in words; nobody is an incident, closed when somebody does again."""
    last = watcher(name)
    if last is not None and last.alive:
        incidents.close("", NO_WATCHER, done="it watches again")
        return f"the watcher looked {last.silent / 1000:.0f} s ago"
    since = "nobody ever watched" if last is None else f"the watcher was last heard {last.silent // 1000} s ago"
    said = f"{since}: only the clock of the streams DAG sees to a dead stream, every five minutes"
    incidents.report("", NO_WATCHER, said, cure="is the triggerer up? Its log says why it does not run the watcher")
    return said
