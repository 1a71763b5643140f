"""What an app's driver needs, from what was seen of it: nothing, a start, or another in its place. It does nothing.

Whoever watches and whoever acts decide by this one rule, each on what it sees itself, so an order that comes late,
twice or from a run that was cleared does no harm.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

# A driver says every two seconds that it lives. Twenty of silence is no collection pause of a small heap and no slow
# disk; a shorter limit would end a driver that is only slow, a longer one leaves a hung one in place.
SILENCE_MS = 20_000
# The first death is answered at once; then doubling, for a start takes both cores for ten seconds. Two minutes at most:
# what ails it may end at any time.
FIRST_DELAY_MS, MOST_DELAY_MS = 2_000, 120_000

DRIVER_FAULTS = DIED, HUNG = "driver died", "driver hung"

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


def decide(seen: Seen) -> Step:
    """The next step; the first rule that fits decides."""
    if seen.lives:
        silent = seen.silent or 0
        if silent > SILENCE_MS and (seen.age is None or seen.age > SILENCE_MS):
            return Step(
                kind="replace", cause=HUNG,
                saw=f"driver {seen.pid} lives but has said nothing for {silent // 1000} s",
            )  # fmt: skip
        spoke = "is starting" if seen.silent is None else f"spoke {max(silent, 0) / 1000:.0f} s ago"
        return Step(kind="nothing", saw=f"driver {seen.pid} lives and {spoke}")
    if not seen.wanted:
        return Step(kind="nothing", saw="no driver, and no stream is wanted")
    if seen.uncounted:
        return Step(kind="start", saw=f"driver {seen.pid} is gone", cause=DIED)
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
    return int(min(MOST_DELAY_MS, FIRST_DELAY_MS * 2 ** min(deaths - 2, 20)) * random.uniform(0.8, 1.2))
