"""What became of a plant: who caught it and in which words, or which number is wrong and nobody said so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import oracle

from faults.planted import story
from faults.planted.stage import Stage
from faults.planted.verbs import Said

CAUGHT = ("refused", "incident", "held")
Place = tuple[float, float, Any]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How a plant ended: `by` is refused, incident, held, healed, inert, silent or crashed."""

    by: str
    words: str
    wrong: list[str] = field(default_factory=list)  # sealed and false, or lost, or left unsealed without a word
    held: list[int] = field(default_factory=list)

    @property
    def caught(self) -> bool:
        return not self.wrong and self.by in (*CAUGHT, "healed", "inert")


def failed(fault: Exception) -> Verdict:
    """A harm that could not be done proves nothing."""
    return Verdict(by="not planted", words=f"{type(fault).__name__}: {fault}")


def reached(stage: Stage, said: Sequence[Said], contract: story.Contract, gone: bool | None) -> Verdict:
    """Look at a copy after its schedule ran; `gone`: whether the harm itself is there no more."""
    seals = {start: state for start, state in slots(stage)}
    held = sorted(start for start, state in seals.items() if state == "held")
    served = next((one.found for one in said if one.verb == "read"), None) or []
    batch = next(one for one in said if one.verb == "batch")
    ended = next((one.refused for one in said if "out of memory" in one.refused), "")
    if ended:
        return Verdict(by="not run", words=ended)  # the campaign's own session, and nobody's answer to the plant
    heard = any(one.refused for one in said)
    wrong = differences(stage, served, seals, contract, stated=not batch.refused, heard=heard)
    refusals = [f"{one.verb}: {one.refused}" for one in said if one.refused]
    crashes = [f"{one.verb}: {one.crashed}" for one in said if one.crashed]
    told = incidents(stage)
    if refusals:
        return Verdict(by="refused", words=refusals[0], wrong=wrong, held=held)
    if crashes:
        return Verdict(by="crashed", words=crashes[0], wrong=wrong, held=held)
    if held:
        words = "; ".join(told) or f"{len(held)} windows held, and no incident"
        return Verdict(by="held", words=words, wrong=wrong, held=held)
    if told:
        return Verdict(by="incident", words="; ".join(told), wrong=wrong)
    if gone is None or not gone:
        return Verdict(by="inert", words="nobody said anything; the numbers are right", wrong=wrong)
    return Verdict(by="healed", words="put right without a word", wrong=wrong)


def slots(stage: Stage) -> list[tuple[int, str]]:
    found = stage.control(
        "SELECT slot_start, state FROM seals WHERE pipeline = ? AND version = ?", stage.name, stage.version()
    )
    return [(start, state) for start, state in found]


def incidents(stage: Stage) -> list[str]:
    """Open ones, in order."""
    rows = stage.control("SELECT pipeline, cause, evidence FROM incidents WHERE closed_at IS NULL ORDER BY id")
    return [f"{pipeline}: {cause}: {evidence}" for pipeline, cause, evidence in rows]


def differences(
    stage: Stage, served: Sequence[dict[str, Any]], seals: dict[int, str], contract: story.Contract, *,
    stated: bool, heard: bool,
) -> list[str]:  # fmt: skip
    """Rows that are served as sealed and are not true, or that are missing where a seal or nobody speaks for them.

    Where the batch was refused, what was sealed before stands for the records that it had then. `heard`: some verb
    was refused, and its words account for what is not judged.
    """
    truths = [measured(stage.truth(contract))] + ([] if stated else [measured(stage.truth(contract, base=True))])
    there = Counter(place_of(row) for row in served)
    found = [f"{shown(place)} is served {count} times" for place, count in there.items() if count > 1]
    known = {}
    for row in served:
        place = place_of(row)
        known[place] = row
        if row["state"] == "sealed" and not any(same(row, rows.get(place)) for rows in truths):
            found.append(f"{shown(place)} is sealed with {brief(row)}, the truth is {truths[0].get(place)}")
    if stage.eaten:  # what was eaten is not known to anybody: only what is served as sealed counts
        return found
    slide = stage.shape.slide or stage.shape.size
    for place, values in truths[0].items():
        if place[1] > story.ENDED - story.MINUTE:  # still open
            continue
        slot = int(place[0] // slide * slide)
        unheard = ("sealed",) if heard else ("sealed", None)
        if place not in known and all(place in rows for rows in truths) and seals.get(slot) in unheard:
            found.append(f"{shown(place)} {values} is missing, its slot is {seals.get(slot, 'not judged')}")
        elif (
            place in known
            and stated
            and not heard
            and known[place]["state"] in ("closed", "open")
            and place[1] < story.ENDED - (10 * story.MINUTE)
        ):
            found.append(f"{shown(place)} is {known[place]['state']} and was not judged")
    return found


def measured(rows: oracle.Rows) -> dict[Place, tuple[Any, ...]]:
    return {place: (n, total, round(total * 100), Decimal(str(total))) for place, (n, total) in rows.items()}


def place_of(row: dict[str, Any]) -> Place:
    """A row's window and key, whichever kind of pipeline it is of."""
    start, end = (row[name].timestamp() * 1000 for name in ("window_start", "window_end"))
    return round(start, 3), round(end, 3), next(row[name] for name in ("shop", "method", "id") if name in row)


def same(row: dict[str, Any], truth: tuple[Any, ...] | None) -> bool:
    return truth is not None and (row["n"], row["total"], row["cents"], row["price"]) == truth


def brief(row: dict[str, Any]) -> str:
    return str((row["n"], row["total"], row["cents"], row["price"]))


def shown(place: Place) -> str:
    return f"[+{(place[0] - story.T0) / story.MINUTE:.2f} min, {place[2]}]"
