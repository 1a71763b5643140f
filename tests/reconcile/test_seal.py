"""Closed windows that reconcile are sealed once per content; what was restated since the comparison is left alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from reconcile.comparisons import STEP, T0, Comparison, difference, restated, slot, use_home

from tally.base.errors import AnswerIsNo, TallyError
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import beginnings, incidents, runs, seals
from tally.reconcile.audit import doubted
from tally.reconcile.judge import judge
from tally.reconcile.seal import seal


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    use_home(monkeypatch, tmp_path)
    return tmp_path


def judged(comparison: Comparison, *, holds_all: bool = False, held_slots: tuple[int, ...] = ()) -> int:
    """A comparison with its verdict as `judge` writes it, without the seconds that Great Expectations takes."""
    number = comparison.write()
    bad = holds_all or held_slots or any(one["unexplained"] for one in comparison.slots)
    verdict = "held" if bad else "reconciled"
    words = {"verdict": verdict, "holds_all": holds_all, "held_slots": list(held_slots), "failed": []}
    runs.judge_reconciliation(number, verdict, "index.html", {**comparison.summary(), **words})
    return number


def vendor_trips() -> Pipeline:
    """The pipeline of these comparisons, in the version that they bear."""
    return replace(catalogue().pipeline("vendor_trips"), version="v000000000001")


def compared() -> Comparison:
    """A comparison of a batch table that was stated once, as that is now."""
    comparison = Comparison()
    comparison.changes["batch_version"] = restated(comparison, (T0, T0 + 3 * STEP))
    return comparison


def states(comparison: Comparison) -> dict[int, tuple[str, int]]:
    found = seals.read(comparison.pipeline, comparison.version)
    return {(one.slot_start - T0) // STEP: (one.state, one.revision) for one in found}


def test_closed_slots_are_sealed_and_open_ones_untouched() -> None:
    comparison = compared()
    done = seal(judged(comparison))
    assert states(comparison) == {0: ("sealed", 1), 1: ("sealed", 1)}
    assert (done.sealed, done.held, done.open, done.changed, done.revisions) == (2, 0, 1, 2, {1: 2})


def test_sealing_again_changes_nothing_by_id_or_by_digest() -> None:
    comparison = compared()
    number = judged(comparison)
    seal(number)
    before = seals.read(comparison.pipeline, comparison.version)
    assert seal(number).changed == 0
    assert seal(judged(comparison)).changed == 0
    assert seals.read(comparison.pipeline, comparison.version) == before


def test_other_rows_are_the_next_revision_and_the_same_rows_are_not() -> None:
    comparison = compared()
    seal(judged(comparison))
    comparison.slots[0]["digest"] = "b"
    seals.unseal(comparison.pipeline, comparison.version, [(T0, T0 + 2 * STEP)])
    assert states(comparison) == {0: ("unsealed", 1), 1: ("unsealed", 1)}
    assert seal(judged(comparison)).changed == 2
    assert states(comparison) == {0: ("sealed", 2), 1: ("sealed", 1)}


def test_a_held_slot_that_was_restated_is_sealed_under_the_next_revision() -> None:
    comparison = compared()
    seal(judged(comparison))
    comparison.slots[1] |= {"unexplained": 1, "digest": "b"}
    seal(judged(comparison))
    seals.unseal(comparison.pipeline, comparison.version, [(T0 + STEP, T0 + 2 * STEP)])
    comparison.slots[1]["unexplained"] = 0
    seal(judged(comparison))
    assert states(comparison)[1] == ("sealed", 2)


def test_sealed_to_ends_at_a_gap() -> None:
    comparison = compared()
    seal(judged(comparison))
    name, version = comparison.pipeline, comparison.version
    assert seals.sealed_to(name, version) == T0 + 2 * STEP
    (first, second) = seals.read(name, version)
    seals.write([replace(second, slot_start=T0 + 5 * STEP, slot_end=T0 + 6 * STEP)])
    assert seals.sealed_to(name, version) == T0 + 2 * STEP
    seals.write([replace(first, slot_start=T0 - STEP, slot_end=T0, state="held")])
    assert seals.sealed_to(name, version) is None


def test_an_unexplained_slot_is_held_at_its_revision_and_its_neighbour_sealed() -> None:
    comparison = compared()
    seal(judged(comparison))
    comparison.slots[1]["unexplained"] = 1
    comparison.slots[0]["digest"] = "b"
    done = seal(judged(comparison))
    assert states(comparison) == {0: ("sealed", 2), 1: ("held", 1)}
    assert (done.sealed, done.held) == (1, 1)
    comparison.slots[1]["unexplained"] = 0
    seal(judged(comparison))
    assert states(comparison)[1] == ("sealed", 2)


def test_a_slot_that_was_never_sealed_is_held_at_revision_0() -> None:
    comparison = compared()
    comparison.slots[1]["unexplained"] = 1
    seal(judged(comparison))
    assert states(comparison) == {0: ("sealed", 1), 1: ("held", 0)}


def test_a_failure_of_the_counts_holds_every_closed_slot() -> None:
    comparison = compared()
    done = seal(judged(comparison, holds_all=True))
    assert states(comparison) == {0: ("held", 0), 1: ("held", 0)}
    assert (done.sealed, done.held, done.open) == (0, 2, 1)


def test_a_slot_that_the_judge_names_is_held() -> None:
    comparison = compared()
    seal(judged(comparison, held_slots=(T0,)))
    assert states(comparison) == {0: ("held", 0), 1: ("sealed", 1)}


def test_what_was_restated_after_the_comparison_is_left_alone() -> None:
    comparison = compared()
    number = judged(comparison)
    restated(comparison, (T0 + STEP, T0 + 2 * STEP))
    restated(comparison, (T0 + 50 * STEP, T0 + 51 * STEP))
    done = seal(number)
    assert states(comparison) == {0: ("sealed", 1)}
    assert (done.sealed, done.restated_since) == (1, 1)
    assert "1 restated since and left alone" in str(done)


def test_what_later_events_touch_since_the_comparison_is_left_alone() -> None:
    comparison = compared()
    number = judged(comparison)
    restated(comparison, (T0 + 50 * STEP, T0 + 51 * STEP), stale=((T0, T0 + STEP),))
    done = seal(number)
    assert states(comparison) == {1: ("sealed", 1)} and done.restated_since == 1


def test_an_older_comparison_does_not_overrule_a_newer_one() -> None:
    comparison = compared()
    older = judged(comparison, holds_all=True)
    newer = judged(comparison)
    seal(newer)
    assert seal(older).changed == 0
    assert states(comparison) == {0: ("sealed", 1), 1: ("sealed", 1)}


def test_a_batch_table_that_was_made_anew_is_refused() -> None:
    comparison = compared()
    comparison.changes["batch_version"] = 7
    with pytest.raises(AnswerIsNo, match="not the one that was compared"):
        seal(judged(comparison))
    assert states(comparison) == {}


def test_what_is_not_judged_is_refused() -> None:
    comparison = compared()
    with pytest.raises(TallyError, match="not judged yet"):
        seal(comparison.write())
    with pytest.raises(TallyError, match="no reconciliation 99"):
        seal(99)
    assert states(comparison) == {}


def test_slots_with_an_explained_difference_are_sealed() -> None:
    comparison = compared()
    comparison.audit = [difference(1, 1, 3, 2, "skipped"), difference(1, 2, 1, None, "late")]
    assert seal(judged(comparison)).sealed == 2


def test_slots_before_the_beginning_are_partial_and_the_others_sealed() -> None:
    comparison = compared()
    beginnings.say(vendor_trips(), T0 + 1, by="a person", why="")
    done = seal(judged(comparison))
    assert states(comparison) == {0: ("partial", 0), 1: ("sealed", 1)}
    assert (done.sealed, done.partial, done.held) == (1, 1, 0)
    assert "1 slots sealed, 1 partial, 0 held, 1 still open" in str(done)
    before = seals.read(comparison.pipeline, comparison.version)
    assert seal(judged(comparison)).changed == 0
    assert seals.read(comparison.pipeline, comparison.version) == before
    assert seals.sealed_to(comparison.pipeline, comparison.version) == T0 + 2 * STEP


def test_a_partial_slot_with_an_unexplained_difference_is_held() -> None:
    comparison = compared()
    beginnings.say(vendor_trips(), T0 + 2 * STEP, by="a person", why="")
    comparison.slots[1]["unexplained"] = 1
    seal(judged(comparison))
    assert states(comparison) == {0: ("partial", 0), 1: ("held", 0)}


def test_a_slot_that_the_beginning_no_longer_cuts_is_sealed_under_its_first_revision() -> None:
    comparison = compared()
    beginnings.say(vendor_trips(), T0 + 2 * STEP, by="a person", why="")
    seal(judged(comparison))
    beginnings.say(vendor_trips(), T0, by="a person", why="")
    assert states(comparison) == {0: ("unsealed", 0), 1: ("unsealed", 0)}
    seal(judged(comparison))
    assert states(comparison) == {0: ("sealed", 1), 1: ("sealed", 1)}


def test_what_an_audit_holds_is_sealed_only_after_a_restatement_and_ends_its_incident() -> None:
    comparison = compared()
    seal(judged(comparison))
    first, _ = seals.read(comparison.pipeline, comparison.version)
    assert doubted.hold(vendor_trips(), {replace(first, revision=7): "another seal by now"}) == []
    assert doubted.hold(vendor_trips(), {first: "rows changed"}) == [first]
    assert states(comparison) == {0: ("held", 1), 1: ("sealed", 1)}
    (told,) = incidents.opened(comparison.pipeline)
    assert told.cause == doubted.CAUSE and "rows changed" in told.evidence
    number = comparison.write()
    assert judge(number).verdict == "held"
    seal(number)
    assert states(comparison)[0] == ("held", 1) and incidents.opened(comparison.pipeline) == incidents.opened()
    seals.unseal(comparison.pipeline, comparison.version, [(T0, T0 + STEP)])
    assert incidents.opened(comparison.pipeline), "restated, and not judged yet"
    number = comparison.write()
    assert judge(number).verdict == "reconciled"
    seal(number)
    assert states(comparison) == {0: ("sealed", 2), 1: ("sealed", 1)}
    assert not incidents.opened(comparison.pipeline)


def test_nothing_due_is_nothing_sealed() -> None:
    comparison = Comparison(slots=[slot(0, closed=False)], audit=[])
    comparison.changes["batch_version"] = restated(comparison, (T0, T0 + STEP))
    done = seal(judged(comparison))
    assert (done.sealed, done.held, done.open, done.changed) == (0, 0, 1, 0)
