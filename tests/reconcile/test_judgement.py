"""What a judgement comes to, by the checks that failed and the slots that they name; without Great Expectations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from comparisons import STEP, T0, slot, use_home

from tally.control import incidents, seals
from tally.reconcile.comparison import HELD, RECONCILED, Comparison, SlotState, Verdict
from tally.reconcile.data_docs import Check, Checked
from tally.reconcile.evidence import Evidence, by_slot
from tally.reconcile.judge import (
    DIFFERENCES,
    EXPLAINED,
    NO_CAUSE,
    NO_SUM,
    SLOTS,
    STREAM_FAULTS,
    TOTALS,
    Judgement,
    bad_slots,
    report,
    title,
    verdict_of,
)


def evidence(*slots: dict[str, Any]) -> Evidence:
    columns = list(slot(0))
    nothing = pd.DataFrame({"slot": [], "batch": [], "stream": [], "cause": [], "explained": []})
    rows = by_slot(pd.DataFrame(list(slots), columns=columns), nothing)
    return Evidence(totals=pd.DataFrame(), slots=rows, differences=nothing)


def checked(*failed: Check) -> Checked:
    return Checked(failed=[(one, "seen") for one in failed], index=Path("/index"), page=Path("/page"))


GOOD = evidence(slot(0), slot(1))


def test_where_no_check_fails_it_is_reconciled() -> None:
    found = verdict_of(checked(), GOOD, [])
    assert (found.word, found.failed, found.holds_all, found.held_slots) == (RECONCILED, [], False, frozenset())
    assert found.page == "/page"


@pytest.mark.parametrize("check", TOTALS, ids=lambda check: check.says)
def test_a_total_that_fails_holds_every_slot(check: Check) -> None:
    found = verdict_of(checked(check), GOOD, [])
    assert (found.word, found.failed, found.holds_all) == (HELD, [f"{check.says}: seen"], True)


@pytest.mark.parametrize("check", [*SLOTS, EXPLAINED], ids=lambda check: check.says)
def test_what_is_wrong_with_slots_holds_those_and_no_others(check: Check) -> None:
    found = verdict_of(checked(check), evidence(slot(0), slot(1, bad=1), slot(2)), [])
    assert (found.word, found.holds_all, found.held_slots) == (HELD, False, frozenset({T0 + STEP}))


@pytest.mark.parametrize("check", [one for one in DIFFERENCES if one is not EXPLAINED], ids=lambda check: check.says)
def test_a_difference_that_does_not_say_where_it_is_holds_every_slot(check: Check) -> None:
    assert verdict_of(checked(check), GOOD, []).holds_all


def test_what_an_audit_holds_stays_held_and_all_else_is_sealed() -> None:
    found = verdict_of(checked(), GOOD, [T0])
    assert (found.word, found.holds_all, found.held_slots) == (HELD, False, frozenset({T0}))
    assert found.failed == ["No window failed its audit and was not restated since: 1 slots"]


@pytest.mark.parametrize(
    ("wrong", "bad"),
    [
        (slot(1, bad=1), True),
        ({**slot(1), "unaccounted": 1}, True),
        (slot(1, rows=2, stream=1), True),  # a key that one layer lacks, and no audit row says so
        (slot(1, rows=2, stream=0), True),
        (slot(1, bad=1, closed=False), False),
        (slot(1), False),
    ],
)
def test_a_slot_is_bad_for_each_reason_alone(wrong: dict[str, Any], bad: bool) -> None:
    assert bad_slots(evidence(slot(0), wrong)) == ([T0 + STEP] if bad else [])


def test_a_slot_of_one_layer_is_bad_though_the_audit_table_has_its_keys() -> None:
    found = pd.DataFrame({"slot": [T0], "batch": ["{}"], "stream": [None], "cause": ["late"], "explained": [False]})
    rows = by_slot(pd.DataFrame([slot(0, rows=1, stream=0)]), found)
    assert rows["rows_missing"].tolist() == rows["rows_missing_by_key"].tolist()
    assert bad_slots(Evidence(totals=found, slots=rows, differences=found)) == [T0]


def test_a_title_is_a_name_for_a_folder() -> None:
    found = title(Comparison(number=7, pipeline="p", version="v", ranges=[(T0, T0 + STEP)]))
    assert found == "reconciliation-7_2026-09-21T141400Z_to_2026-09-21T141500Z"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(monkeypatch, tmp_path)


def reported(word: str, *, unexplained: int = 0, by_itself: bool = True, **given: Any) -> list[str]:
    """The causes of the incidents that are open once a judgement was reported."""
    compared = Comparison(number=1, pipeline="p", version="v", ranges=[(T0, T0 + STEP)], **given)
    judgement = Judgement(
        reconciliation=1, pipeline="p", verdict=word, failed=["a check"], unexplained=unexplained, partial=0,
        data_docs="", page="/page", rows="/rows",
    )  # fmt: skip
    report(compared.judged(Verdict(word=word), ""), judgement, by_itself=by_itself)
    return causes(incidents.opened("p"))


def causes(found: Sequence[incidents.Incident]) -> list[str]:
    return [one.cause for one in found]


def test_an_incident_says_whether_rows_or_counts_are_wrong(home: None) -> None:
    assert reported(HELD, unexplained=2) == [NO_CAUSE]
    assert reported(HELD) == [NO_CAUSE, NO_SUM]
    assert reported(RECONCILED) == []


def test_what_an_audit_alone_holds_has_its_own_incident(home: None) -> None:
    assert reported(HELD, by_itself=False) == []


@pytest.mark.parametrize(("word", "cause"), STREAM_FAULTS.items())
def test_what_no_stream_in_order_does_is_told_though_it_is_explained(home: None, word: str, cause: str) -> None:
    assert reported(RECONCILED, events={word: 3, "late": 9}) == [cause]
    assert reported(RECONCILED, events={"late": 9}) == [cause], "sealing it does not mend the stream"


def test_an_incident_is_open_while_a_slot_elsewhere_is_held(home: None) -> None:
    assert reported(HELD, unexplained=1) == [NO_CAUSE]
    held = seals.Seal(
        pipeline="p", version="v", slot_start=T0, slot_end=T0 + STEP, state="held", revision=0, digest="", rows=0,
        reconciliation=1, changed_at=0,
    )  # fmt: skip
    seals.write([held])
    open_one = SlotState(start=T0, end=T0 + STEP, closed=False)
    assert reported(RECONCILED, slots=[open_one]) == [NO_CAUSE], "this comparison says nothing of it"
    assert reported(RECONCILED, slots=[SlotState(start=T0, end=T0 + STEP, closed=True)]) == []
