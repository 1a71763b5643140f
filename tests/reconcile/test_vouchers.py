"""Which comparison vouches for a slot's rows: the last that found nothing against it, as long as one is kept."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from comparisons import use_home
from cuts import MINUTE, T0, TUMBLING

from tally.control.runs import open_reconciliation
from tally.control.seals import Seal
from tally.reconcile import comparison
from tally.reconcile.comparison import Comparison, SlotState, Verdict
from tally.reconcile.trimmed import vouchers, within


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(monkeypatch, tmp_path)


def judged(seq: int | None, *minutes: int, digest: str = "d", verdict: Verdict | None = None, **given: Any) -> int:
    """A comparison of these slots, made when so many ingests were archived; reconciled unless it is said otherwise."""
    slots = [
        SlotState(start=T0 + at * MINUTE, end=T0 + (at + 1) * MINUTE, digest=f"{digest}{at}", closed=True)
        for at in minutes
    ]
    number = open_reconciliation("demand", given.get("version", "v1"), T0, T0 + MINUTE, "")
    archive = None if seq is None else {"orders": seq}
    plain: dict[str, Any] = {
        "number": number,
        "pipeline": "demand",
        "version": "v1",
        "slots": slots,
        "archive": archive,
    }
    found = Comparison(**{**plain, **given})
    comparison.keep(found)
    comparison.keep_judged(found.judged(verdict or Verdict(word="reconciled"), ""))
    return number


def seal(minute: int, number: int) -> Seal:
    start = T0 + minute * MINUTE
    return Seal(
        pipeline="demand", version="v1", slot_start=start, slot_end=start + MINUTE, state="sealed", revision=1,
        digest="", rows=0, reconciliation=number, changed_at=0,
    )  # fmt: skip


def told(*known: Seal) -> list[tuple[int, list[str]]]:
    return [(archive["orders"], list(digests.values())) for archive, digests in vouchers(TUMBLING, known)]


def test_each_slot_has_the_word_of_the_comparison_that_sealed_it() -> None:
    first, second = judged(1, 0, 1), judged(2, 1, 2, digest="e")
    assert told(seal(0, first), seal(1, second)) == [(2, ["e1"]), (1, ["d0"])]


HELD = T0 + MINUTE


@pytest.mark.parametrize(
    "verdict", [Verdict(word="held", holds_all=True), Verdict(word="held", held_slots=frozenset({HELD}))]
)
def test_a_slot_that_is_held_now_has_the_word_of_an_earlier_comparison(verdict: Verdict) -> None:
    judged(1, 1, digest="a")
    judged(2, 1, digest="b")
    held = judged(3, 1, digest="c", verdict=verdict)
    assert told(seal(1, held)) == [(2, ["b1"])]


def test_what_was_open_is_open_to_doubt() -> None:
    slot = SlotState(start=T0, end=T0 + MINUTE, digest="d0", closed=False)
    assert told(seal(0, judged(1, slots=[slot]))) == []


def test_of_another_version_or_without_an_archive_it_vouches_for_nothing() -> None:
    assert told(seal(0, judged(1, 0, version="v2"))) == []
    assert told(seal(0, judged(None, 0))) == []
    assert told(seal(0, 99)) == [], "no such comparison is kept"


def test_ranges_are_cut_to_the_days_that_were_trimmed() -> None:
    day, midnight = date(2026, 9, 22), 1_790_035_200_000
    span = (midnight - MINUTE, midnight + MINUTE)
    assert within([span], [day]) == [(midnight, midnight + MINUTE)]
    assert within([span], [date(2026, 9, 21)]) == [(midnight - MINUTE, midnight)]
    assert within([span], []) == []
