"""What is seen of an app's driver, and what it needs by that: nothing, a start, or another in its place.

It changes nothing. What is seen is its lock, its row in the control store, and what people want of its streams.
Whoever watches and whoever acts decide by this one rule, each on what it sees itself, so an order that comes late,
twice or from a run that was cleared does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tally.control import streams
from tally.control.incidents import DRIVER_DIED, DRIVER_HUNG
from tally.control.store import now_ms
from tally.host import driver_files, lock
from tally.host.waiting import backoff
from tally.supervise import launch

# A driver says every two seconds that it lives. Twenty of silence is no collection pause of a small heap and no slow
# disk; a shorter limit would end a driver that is only slow, a longer one leaves a hung one in place.
SILENCE_MS = 20_000
# The first death is answered at once; then doubling, for a start takes both cores for ten seconds. Two minutes at most:
# what ails it may end at any time.
FIRST_DELAY_MS, MOST_DELAY_MS = 2_000, 120_000
# A pod waits for a node, and for its image: its first word may take minutes.
ELSEWHERE_MS = 300_000

Kind = Literal["nothing", "start", "replace", "tell"]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """An app's driver as it was just seen; ages in milliseconds, None where there is nothing to age."""

    app: str
    wanted: int  # streams that should run
    lives: bool
    pid: int | None = None
    uncounted: bool = False  # it was launched, no longer lives, and nobody has counted its death
    silent: int | None = None
    age: int | None = None
    deaths: int = 0
    retry_in: int = 0  # 0 or less: it is time
    last_words: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What to do about it, and why."""

    kind: Kind
    saw: str
    cause: str = ""  # the incident that it is, if it is one


def look(app: str = driver_files.APP) -> Seen:
    """The app's driver as it is now; two small queries and a try of a lock, which may be had once a second for ever."""
    now, desired, row = now_ms(), streams.desired_states(), streams.driver(app)
    wanted = sum(desired.get(name, {"state": "running"})["state"] == "running" for name in launch.pipelines())
    path = driver_files.lock_path(app)
    lives = lock.is_held(path)
    holder = lock.holder(path) if lives else None
    if row is None:
        return Seen(app=app, wanted=wanted, lives=lives, pid=holder.pid if holder else None)
    wait = int(row["retry_at"]) - now
    if launch.elsewhere():
        # Nothing of it can be seen from here but what it writes: a job that was handed over counts as alive until its
        # silence is too long, and is then ended before another is started.
        lives = bool(row["job"])
    starting = lives and not holder and not row["pid"] and now - int(row["launched_at"]) < ELSEWHERE_MS
    return Seen(
        app=app,
        wanted=wanted,
        lives=lives,
        pid=holder.pid if holder else int(row["pid"]) or None,
        uncounted=not lives and (int(row["pid"]) != 0 or bool(row["job"])),
        silent=0 if starting else now - int(row["heartbeat_at"]),
        age=now - int(row["launched_at"]),
        deaths=int(row["deaths"]),
        # By the wall clock, for it must outlive every process; one that was set back may not hold a stream for ever.
        retry_in=wait if wait <= MOST_DELAY_MS * 2 else 0,
        last_words=str(row["last_words"]),
    )


def decide(seen: Seen) -> Step:
    """The next step; the first rule that fits decides."""
    if seen.lives:
        silent = seen.silent or 0
        if silent > SILENCE_MS and (seen.age is None or seen.age > SILENCE_MS):
            return Step(
                kind="replace", cause=DRIVER_HUNG,
                saw=f"driver {seen.pid} lives but has said nothing for {silent // 1000} s",
            )  # fmt: skip
        spoke = "is starting" if seen.silent is None else f"spoke {max(silent, 0) / 1000:.0f} s ago"
        return Step(kind="nothing", saw=f"driver {seen.pid} lives and {spoke}")
    if not seen.wanted:
        return Step(kind="nothing", saw="no driver, and no stream is wanted")
    if seen.uncounted:
        return Step(kind="start", saw=f"driver {seen.pid} is gone", cause=DRIVER_DIED)
    if seen.retry_in > 0:
        said = f": {seen.last_words}" if seen.last_words else ""
        return Step(
            kind="nothing",
            saw=f"{seen.deaths} drivers in a row died before every stream went on; "
            f"next try in {seen.retry_in / 1000:.0f} s{said}",
        )
    return Step(kind="start", saw="no driver lives" if seen.age is not None else "no driver was ever started")


def delay_ms(deaths: int) -> int:
    """How long to wait after so many deaths in a row, none of which every stream has outlived."""
    if deaths <= 1:
        return 0
    return int(backoff(deaths - 1, FIRST_DELAY_MS, MOST_DELAY_MS))
