"""A plant as a value: one thing in the product's own data that is harmed, in a copy of one kind's home."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from faults.planted import story
from faults.planted.stage import Stage

Still = Callable[[], bool]
# Does the harm, and says how to see whether it is still there; None where that cannot be asked.
Harm = Callable[[Stage, random.Random], Still | None]


@dataclass(frozen=True, kw_only=True)
class Plant:
    """What is harmed, where, and of what a schedule needs to see it."""

    name: str
    where: str  # stream rows | batch rows | archive | ...
    kind: str  # tumbling | hopping | session | join | events | begun late
    when: str  # before | after the first seal
    harm: Harm
    deep: bool = False  # only a deep audit can see it
    contract: story.Contract = story.DECLARED  # which records are valid once it is done
    settings: tuple[tuple[str, str], ...] = ()
