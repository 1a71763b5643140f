"""Runs that nobody harmed: each must reconcile, and what it serves as sealed must be the truth. An alarm is a fault."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.planted import stage as stages
from faults.planted import story, verbs, verdict
from faults.planted.stage import AFTER, BEFORE, let_go

KINDS = ("tumbling", "hopping", "session", "join", "events")
STAMPS = ("CreateTime", "LogAppendTime")


@dataclass(frozen=True, kw_only=True)
class Clean:
    """A run without harm, and what was wrong with it all the same."""

    name: str
    seed: int
    events: int
    explained: dict[str, int]
    alarms: tuple[str, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "alarms": list(self.alarms)}


def runs(folder: Path, bootstrap: str, seed: int, count: int) -> Iterator[Clean]:
    """Every kind in turn, with ids and without, on topics that carry the producer's time or the broker's."""
    for at in range(count):
        kind, stamp = KINDS[at % 5], STAMPS[at // 10 % 2]
        unique = kind == "events" or at // 5 % 2 == 0
        yield one_run(folder, bootstrap, kind, stamp, unique, seed * 1000 + at)


def one_run(folder: Path, bootstrap: str, kind: str, stamp: str, unique: bool, seed: int) -> Clean:
    began = time.monotonic()
    where, rng = folder / f"clean{seed}", random.Random(seed)
    when = rng.choice([BEFORE, AFTER])  # as often as not the first seal comes only with the rest
    built = stages.built(
        where, bootstrap, kind, f"clean{seed}.", seed,
        unique=unique, count=rng.randrange(60, 140), stamp=stamp, whens=(when,),
    )  # fmt: skip
    copy = built[when]
    with copy.in_force():
        said = verbs.schedule(copy, deep=True)
        found = verdict.reached(copy, said, story.DECLARED, True)
        summary = next((one.found for one in said if one.verb == "reconcile"), None) or {}
        let_go()
    shutil.rmtree(where, ignore_errors=True)
    alarms = [*found.wrong, *([found.words] if found.by != "healed" else [])]
    if summary.get("unexplained", 1) or summary.get("verdict") != "reconciled":
        alarms.append(f"{summary.get('unexplained')} unexplained, {summary.get('verdict')}")
    ids = "ids" if unique else "no ids"
    return Clean(
        name=f"{kind}, {ids}, {stamp}", seed=seed, events=len(copy.post.sent),
        explained=dict(summary.get("events", {})), alarms=tuple(alarms), seconds=round(time.monotonic() - began, 1),
    )  # fmt: skip


def table(found: Sequence[Clean]) -> str:
    """As it goes into docs/reliability.md: a line a kind."""
    lines = ["| runs | of | records | explained | false alarms |", "|---|---|---|---|---|"]
    for name in sorted({one.name for one in found}):
        mine = [one for one in found if one.name == name]
        causes = {cause for one in mine for cause in one.explained}
        told = ", ".join(f"{sum(one.explained.get(c, 0) for one in mine)} {c}" for c in sorted(causes))
        alarms = sum(bool(one.alarms) for one in mine)
        lines.append(f"| {len(mine)} | {name} | {sum(one.events for one in mine):,} | {told} | {alarms} |")
    return "\n".join(lines)
