"""Sealed windows that an audit found wrong: held until they are restated and judged again, told of by one incident."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tally.base.duration import from_millis, iso
from tally.base.failpoints import failpoint
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Pipeline
from tally.control import incidents, seals
from tally.control.seals import Seal
from tally.control.store import now_ms
from tally.host import lock
from tally.reconcile.comparison import Comparison

CAUSE = "a sealed window failed its audit"
SHOWN = 5  # ranges that an incident names


def hold(pipeline: Pipeline, found: Mapping[Seal, str]) -> list[Seal]:
    """Hold the slots whose seals are still those that were audited; idempotent by slot.

    All that audits hold is reported, this one's and what an earlier one was killed before it reported.
    """
    held = marked(pipeline, found) if found else []
    report(pipeline.name, pipeline.version)
    return held


def marked(pipeline: Pipeline, found: Mapping[Seal, str]) -> list[Seal]:
    """A restatement unseals before it writes: a seal that is the same now stood over the rows that were looked at."""
    first, last = min(seal.slot_start for seal in found), max(seal.slot_end for seal in found)
    with lock.table("batch", pipeline.name, pipeline.version):
        now = {seal.slot_start: seal for seal in seals.read(pipeline.name, pipeline.version, first, last)}
        mine = [seal for seal in found if now.get(seal.slot_start) == seal]
        failpoint("audit.before_hold")
        seals.write(replace(seal, state="held", fault=found[seal], changed_at=now_ms()) for seal in mine)
        failpoint("audit.after_hold")
    return mine


def report(pipeline: str, version: str) -> None:
    """Open the incident of all slots that audits hold, or add to it."""
    found = seals.doubted(pipeline, version)
    if not found:
        return
    parts = [f"{shown(wanted)}: {fault}" for fault, wanted in by_fault({seal: seal.fault for seal in found})]
    more = f"; and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    said = f"windows are held: {'; '.join(parts[:SHOWN])}{more}"
    since, until = (iso(from_millis(edge)) for edge in (found[0].slot_start, found[-1].slot_end))
    cure = f"mend what is named, then tally backfill {pipeline} --from {since} --to {until}"
    incidents.report(pipeline, CAUSE, said, cure=cure)


def by_fault(found: Mapping[Seal, str]) -> Iterator[tuple[str, Range]]:
    """What is wrong, and each range of windows in which it is."""
    for fault in sorted(set(found.values())):
        for wanted in merge((seal.slot_start, seal.slot_end) for seal, one in found.items() if one == fault):
            yield fault, wanted


def settle(pipeline: str, version: str) -> None:
    """Close the incident once every slot that it names was restated and judged again."""
    if not seals.doubted(pipeline, version):
        incidents.close(pipeline, CAUSE, done="restated, and judged again")


def waiting(compared: Comparison) -> list[int]:
    """The slots of a comparison that an audit holds and that were not restated since: what is equal proves nothing."""
    mine = {slot.start for slot in compared.slots}
    found = seals.doubted(compared.pipeline, compared.version)
    return [seal.slot_start for seal in found if seal.state == "held" and seal.slot_start in mine]


def shown(wanted: Range) -> str:
    return f"[{iso(from_millis(wanted[0]))}, {iso(from_millis(wanted[1]))})"
