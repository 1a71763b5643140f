"""Seals the windows of a judged comparison, or holds them, unless they were restated since. No Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, meets, merge
from tally.control import beginnings, seals
from tally.control.beginnings import Beginning
from tally.control.seals import Seal
from tally.control.store import now_ms
from tally.host import lock
from tally.lake import delta
from tally.reconcile import comparison
from tally.reconcile.audit import doubted
from tally.reconcile.comparison import HELD, RECONCILED, Comparison, SlotState
from tally.reconcile.rows.digest import alike


@dataclass(frozen=True, kw_only=True)
class Sealed:
    """The slots of a comparison by the state they now have, how many of them changed, and those left alone."""

    reconciliation: int
    sealed: int
    partial: int  # they start before the numbers begin: served, and never sealed
    held: int
    open: int
    changed: int
    restated_since: int  # left alone: their rows are not those that were compared
    revisions: dict[int, int]  # revision -> sealed slots that bear it

    @property
    def states(self) -> str:
        """The slots by their states, in words."""
        cut = f"{self.partial:,} partial, " if self.partial else ""
        left = f", {self.restated_since:,} restated since and left alone" if self.restated_since else ""
        return f"{self.sealed:,} slots sealed, {cut}{self.held:,} held, {self.open:,} still open{left}"

    def __str__(self) -> str:
        return f"{self.states}; {self.changed:,} changed"


def seal(number: int) -> Sealed:
    """Put each closed slot into its state; idempotent by the comparison's id and each slot's digest."""
    compared = comparison.of(number, ready=(RECONCILED, HELD))
    pipeline, version = compared.pipeline, compared.version
    # Under the lock nobody restates: what is sealed here is what was compared, or is left alone.
    with lock.table("batch", pipeline, version):
        newer = restated_since(compared)
        begun = beginnings.of(catalogue().pipeline(pipeline))
        known = {one.slot_start: one for one in seals.read(pipeline, version, *compared.span)}
        closed = [slot for slot in compared.slots if slot.closed]
        mine = [slot for slot in closed if not meets(newer, (slot.start, slot.end))]
        states = [state_of(slot, compared, known.get(slot.start), begun) for slot in mine]
        changed = [state for state in states if state != known.get(state.slot_start)]
        failpoint("seal.before_write")
        seals.write(changed)
        failpoint("seal.after_write")
        doubted.settle(pipeline, version)
    sealed = [state for state in states if state.state == "sealed"]
    return Sealed(
        reconciliation=number,
        sealed=len(sealed),
        partial=sum(state.state == "partial" for state in states),
        held=sum(state.state == "held" for state in states),
        open=len(compared.slots) - len(closed),
        changed=sum(differs(state, known.get(state.slot_start)) for state in changed),
        restated_since=len(closed) - len(mine),
        revisions=dict(sorted(Counter(state.revision for state in sealed).items())),
    )


def restated_since(compared: Comparison) -> list[Range]:
    """The ranges that restatements replaced, or knew to have later events of, after the one that was compared."""
    name = compared.pipeline
    newer: list[Range] = []
    for commit in delta.commits(settings().table("batch", name, compared.version)):
        if commit.version == compared.batch_version:
            return merge(newer)
        if commit.version < compared.batch_version:
            break
        if commit.words.get("kind") == "restate":
            newer += [(start, end) for kind in ("ranges", "stale") for start, end in commit.words[kind]]
    since, until = (iso(from_millis(edge)) for edge in compared.span)
    raise AnswerIsNo(
        "the batch table is not the one that was compared",
        pipeline=name,
        cure=f"tally reconcile {name} --from {since} --to {until}",
    )


def state_of(slot: SlotState, compared: Comparison, known: Seal | None, begun: Beginning) -> Seal:
    """The state that a verdict gives a closed slot; a later comparison's word stands."""
    number = compared.number
    if known and known.reconciliation > number and known.state != "unsealed":
        return known
    good, state = compared.clears(slot), "held"
    if good:
        state = "partial" if begun.cuts(slot.start) else "sealed"
    same = known is not None and known.state in ("sealed", "unsealed") and alike(known.digest, slot.digest)
    new = Seal(
        pipeline=compared.pipeline,
        version=compared.version,
        slot_start=slot.start,
        slot_end=slot.end,
        state=state,
        revision=(known.revision if known else 0) + (1 if state == "sealed" and not same else 0),
        digest=slot.digest,
        rows=slot.rows,
        reconciliation=number,
        changed_at=now_ms(),
        explained=slot.explained,
        fault=known.fault if known and known.state == "held" and not good else "",
    )
    if known is None or differs(new, known):
        return new
    return known if good else replace(known, reconciliation=number)


def differs(new: Seal, known: Seal | None) -> bool:
    return known is None or (new.state, new.digest) != (known.state, known.digest)
