"""Sealed windows that an audit found wrong: held until they are restated and judged again, told of by one incident."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tally.catalog.duration import from_millis, iso
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Pipeline
from tally.control import incidents, seals
from tally.control.seals import Seal
from tally.control.store import now_ms
from tally.failpoints import failpoint
from tally.supervise import lock

CAUSE = "a sealed window failed its audit"
SHOWN = 5  # ranges that an incident names; all of them are held


def hold(pipeline: Pipeline, found: Mapping[Seal, str]) -> list[Seal]:
    """Hold the slots whose seals are still those that were audited; idempotent by slot, and the incident follows.

    A restatement unseals before it writes: a seal that is the same now stood over the rows that were looked at.
    """
    first, last = min(seal.slot_start for seal in found), max(seal.slot_end for seal in found)
    with lock.table("batch", pipeline.name, pipeline.version):
        now = {seal.slot_start: seal for seal in seals.read(pipeline.name, pipeline.version, first, last)}
        mine = [
            replace(seal, state="held", fault=fault, changed_at=now_ms())
            for seal, fault in found.items()
            if now.get(seal.slot_start) == seal
        ]
        failpoint("audit.before_hold")
        seals.write(mine)
        failpoint("audit.after_hold")
    tell(pipeline.name, pipeline.version)
    return mine


def tell(pipeline: str, version: str) -> None:
    """Open the incident of all slots that an audit holds, or add to it."""
    found = seals.doubted(pipeline, version)
    ranges = merge((seal.slot_start, seal.slot_end) for seal in found)
    faults = sorted({seal.fault for seal in found})
    more = f" and {len(ranges) - SHOWN} more" if len(ranges) > SHOWN else ""
    said = f"windows {', '.join(map(shown, ranges[:SHOWN]))}{more} are held: {'; '.join(faults)}"
    if found:
        incidents.report(pipeline, CAUSE, said, cure=cure(pipeline, (ranges[0][0], ranges[-1][1])))


def settle(pipeline: str, version: str) -> None:
    """Close the incident once every slot that it told of was restated and judged again."""
    if not seals.doubted(pipeline, version):
        incidents.close(pipeline, CAUSE, done="restated, and judged again")


def waiting(row: Mapping[str, Any]) -> list[int]:
    """The slots of a comparison that an audit holds and that were not restated since: what is equal proves nothing."""
    mine = {slot["start"] for slot in row["slots"]}
    found = seals.doubted(str(row["pipeline"]), str(row["version"]))
    return [seal.slot_start for seal in found if seal.state == "held" and seal.slot_start in mine]


def cure(pipeline: str, wanted: Range) -> str:
    since, until = (iso(from_millis(edge)) for edge in wanted)
    return f"mend what is named, then tally backfill {pipeline} --from {since} --to {until}"


def shown(wanted: Range) -> str:
    return f"[{iso(from_millis(wanted[0]))}, {iso(from_millis(wanted[1]))})"
