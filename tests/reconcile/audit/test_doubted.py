"""What audits hold is told by range, and a comparison that finds both layers equal does not end it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from reconcile.comparisons import use_home
from reconcile.cuts import MINUTE, T0, TUMBLING

from tally.control import incidents, seals
from tally.control.seals import Seal
from tally.reconcile.audit import doubted
from tally.reconcile.comparison import Comparison, SlotState


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(monkeypatch, tmp_path)


def seal(minute: int, *, fault: str = "", state: str = "sealed") -> Seal:
    start = T0 + minute * MINUTE
    return Seal(
        pipeline="demand", version="v1", slot_start=start, slot_end=start + MINUTE, state=state, revision=1, digest="",
        rows=0, reconciliation=1, changed_at=0, fault=fault,
    )  # fmt: skip


def test_slots_that_lie_together_are_told_as_one_range_by_what_is_wrong() -> None:
    found = {seal(0): "b", seal(1): "b", seal(3): "b", seal(2): "a"}
    assert list(doubted.by_fault(found)) == [
        ("a", (T0 + 2 * MINUTE, T0 + 3 * MINUTE)),
        ("b", (T0, T0 + 2 * MINUTE)),
        ("b", (T0 + 3 * MINUTE, T0 + 4 * MINUTE)),
    ]


def test_only_a_seal_that_is_still_the_same_is_held() -> None:
    audited = [seal(0), seal(1)]
    seals.write([audited[0], replace(audited[1], state="unsealed")])
    assert doubted.hold(TUMBLING, dict.fromkeys(audited, "changed")) == [audited[0]]
    states = [(one.state, one.fault) for one in seals.read("demand", "v1")]
    assert states == [("held", "changed"), ("unsealed", "")]


def test_an_incident_names_the_first_ranges_and_counts_the_others() -> None:
    slots = [seal(at) for at in range(0, 2 * (doubted.SHOWN + 2), 2)]
    seals.write(slots)
    doubted.hold(TUMBLING, dict.fromkeys(slots, "changed"))
    (told,) = incidents.opened("demand")
    assert told.evidence.count("changed") == doubted.SHOWN and told.evidence.endswith("; and 2 more")
    assert "--from 2026-09-21T14:14:00Z --to 2026-09-21T14:27:00Z" in told.cure


def test_what_an_earlier_audit_held_and_did_not_report_is_reported() -> None:
    seals.write([seal(0, fault="changed", state="held")])
    assert doubted.hold(TUMBLING, {}) == []
    assert [one.cause for one in incidents.opened("demand")] == [doubted.CAUSE]


def test_a_comparison_waits_for_its_own_slots_that_are_held_and_not_restated() -> None:
    seals.write(
        [
            seal(0, fault="x", state="held"),
            seal(1, fault="x", state="unsealed"),
            seal(2),
            seal(9, fault="x", state="held"),
        ]
    )
    slots = [SlotState(start=T0 + at * MINUTE, end=T0 + (at + 1) * MINUTE) for at in range(4)]
    compared = Comparison(number=1, pipeline="demand", version="v1", slots=slots)
    assert doubted.waiting(compared) == [T0]
    assert doubted.waiting(replace(compared, version="v2")) == []


def test_the_incident_ends_once_no_slot_is_doubted() -> None:
    seals.write([seal(0)])
    doubted.hold(TUMBLING, {seal(0): "changed"})
    doubted.settle("demand", "v1")
    assert incidents.opened("demand")
    seals.write([seal(0)])
    doubted.settle("demand", "v1")
    assert not incidents.opened("demand")
