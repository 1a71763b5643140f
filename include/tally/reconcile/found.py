"""What a comparison found, before anybody judged it: its counts, each slot's state, and all of it as one document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tally.base.duration import from_millis, iso, millis
from tally.catalog.ranges import Range
from tally.control import seals
from tally.reconcile.conserve import ingest_balance, ingests
from tally.reconcile.cut import Cut
from tally.reconcile.differences import Slot
from tally.reconcile.digest import NOTHING


@dataclass(kw_only=True)
class Found:
    """What a comparison found, before anybody judged it."""

    equal: int = 0
    different: int = 0
    rounding: int = 0
    unexplained: int = 0
    events: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad_slots: Counter[int] = field(default_factory=Counter)
    explained: Counter[int] = field(default_factory=Counter)
    conserved: dict[str, Any] = field(default_factory=dict)
    unaccounted: set[int] = field(default_factory=set)  # sealed slots that changed, and no event arrived


def slot_states(cut: Cut, ranges: Sequence[Range], slots: Mapping[int, Slot], found: Found) -> list[dict[str, Any]]:
    """Each slot between the first and the last with rows: what a seal is put on.

    Where the slot before a range is judged, the range's first empty slots are too, so that seals leave no gap.
    """
    step, pipeline = millis(cut.pipeline.window.step), cut.pipeline
    filled = slots.keys() | found.unaccounted
    if not filled:
        return []
    before, last = ranges[0][0] - step, max(filled) + step
    judged = {seal.slot_end for seal in seals.read(pipeline.name, pipeline.version, before, last)}
    states = []
    for start, end in ranges:
        first = start if start in judged else max(start, min(filled))
        for slot in range(first, min(end, last), step):
            states.append(slot_state(cut, slot, slot + step, slots.get(slot), found))
    return states


def slot_state(cut: Cut, slot: int, end: int, rows: Slot | None, found: Found) -> dict[str, Any]:
    last_end = rows.last_end if rows else end - 1 + millis(cut.pipeline.window.size)
    return {
        "start": slot,
        "end": end,
        "rows": rows.rows if rows else 0,
        "stream_rows": rows.stream_rows if rows else 0,
        "digest": rows.digest if rows else NOTHING,
        "closed": cut.closed(max(last_end, end)),
        "unexplained": found.bad_slots[slot],
        "explained": found.explained[slot],
        "unaccounted": int(slot in found.unaccounted),
    }


def summary(
    cut: Cut, ranges: Sequence[Range], found: Found, states: Sequence[dict[str, Any]], ticket: str
) -> dict[str, Any]:
    """The comparison as one plain document."""
    return {
        "pipeline": cut.pipeline.name,
        "version": cut.pipeline.version,
        "from": iso(from_millis(ranges[0][0])) if ranges else None,
        "to": iso(from_millis(ranges[-1][1])) if ranges else None,
        "ranges": [list(r) for r in ranges],
        "ticket": ticket,
        "windows": found.equal + found.different,
        "equal": found.equal,
        "different": found.different,
        "rounding": found.rounding,
        "events": dict(sorted(found.events.items())),
        "unexplained": found.unexplained,
        "rows": found.rows,
        "open_windows": sum(max(s["rows"], s["stream_rows"]) for s in states if not s["closed"]),
        "conservation": found.conserved,
        "ingest": ingest_balance(cut.pipeline),
        "cut": {
            "batch": cut.last.batch,
            "generation": cut.last.generation,
            "watermark": iso(from_millis(cut.last.watermark)),
            "speed_version": cut.speed_version,
        },
        "batch_version": cut.batch_version,
        "archive": ingests(cut),
        "verdict": "compared",
    }
