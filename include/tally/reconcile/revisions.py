"""What a seal owes to the one before: a window changes by events that arrived since, and by nothing else. No Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tally.base.duration import millis
from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline
from tally.control import runs, seals
from tally.control.seals import Seal
from tally.reconcile.accounts import Support
from tally.reconcile.cut import Cut
from tally.reconcile.rows.differences import Slot
from tally.reconcile.rows.digest import NOTHING, alike, same


def sealed(pipeline: Pipeline, ranges: Sequence[Range]) -> dict[int, Seal]:
    """The slots of the ranges that were sealed, and of which the rows of that seal are still known."""
    known = judged(pipeline, ranges)
    return {s.slot_start: s for s in known if s.revision and s.digest and s.state in ("sealed", "unsealed")}


def judged(pipeline: Pipeline, ranges: Sequence[Range]) -> Iterator[Seal]:
    """The seals of the slots that start in the merged ranges."""
    known = seals.read(pipeline.name, pipeline.version, ranges[0][0], ranges[-1][1]) if ranges else []
    at = 0
    for seal in known:  # both are in order
        while ranges[at][1] <= seal.slot_start:
            at += 1
        if ranges[at][0] <= seal.slot_start:
            yield seal


def with_windows(cut: Cut, ends: Mapping[int, int], known: Mapping[int, Seal]) -> dict[int, int]:
    """How far the windows of each slot reach, also of those that had rows when they were sealed and have none now."""
    size = millis(cut.pipeline.window.size)
    return {**{slot: seal.slot_end + size for slot, seal in known.items()}, **ends}


def unaccounted(
    cut: Cut, known: Mapping[int, Seal], slots: Mapping[int, Slot], supports: Mapping[int, Sequence[Support]]
) -> set[int]:
    """The slots whose rows are not those of their seal, though no event that has a say in them was archived since."""
    now = {slot: slots[slot].digest if slot in slots else NOTHING for slot in known}
    changed = {slot: seal for slot, seal in known.items() if not kept(seal, now[slot])}
    archives = runs.archives({seal.reconciliation for seal in changed.values()})
    topics = [topic.name for topic in cut.pipeline.reads]

    def arrived(slot: int, seal: Seal) -> bool:
        then = archives.get(seal.reconciliation)
        if then is None:  # an older store did not keep it
            return True
        return any(one.newest > then.get(topic, -1) for topic, one in zip(topics, supports[slot], strict=True))

    return {slot for slot, seal in changed.items() if not arrived(slot, seal)}


def kept(seal: Seal, digest: str) -> bool:
    """Whether a slot's rows are those of its seal: the very same, or stated again from the same events."""
    return same(seal.digest, digest) or (seal.state == "unsealed" and alike(seal.digest, digest))
