"""A seal is held against the comparison that it names: one that was put by another hand is found. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tally.control import runs
from tally.control.seals import Seal
from tally.reconcile.audit.checks import of_comparisons

MINUTE = 60_000


def slot(minute: int, *, unexplained: int = 0, digest: str = "a:b", closed: bool = True) -> dict[str, Any]:
    edges = {"start": minute * MINUTE, "end": (minute + 1) * MINUTE}
    return {**edges, "unexplained": unexplained, "digest": digest, "closed": closed}


@pytest.fixture(autouse=True)
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    for summary in ({"holds_all": [], "held_slots": [3 * MINUTE]}, {}):
        number = runs.open_reconciliation("demand", "v1", 0, 9 * MINUTE, "")
        slots = [slot(0), slot(1, unexplained=1), slot(2, closed=False), slot(3)]
        runs.keep_comparison(number, summary, slots)


def seal(minute: int, **other: Any) -> Seal:
    given = Seal(
        pipeline="demand", version="v1", slot_start=minute * MINUTE, slot_end=(minute + 1) * MINUTE, state="sealed",
        revision=1, digest="a:b", rows=1, reconciliation=1, changed_at=0,
    )  # fmt: skip
    return replace(given, **other)


def test_what_it_sealed_passes() -> None:
    assert of_comparisons([seal(0)]) == {}
    assert of_comparisons([seal(7, reconciliation=2)]) == {}, "an older store did not keep it"


@pytest.mark.parametrize(
    "other",
    [
        seal(1),  # it was held
        seal(2),  # it was open
        seal(3),  # it was held for its rows
        seal(4),  # it was not compared
        seal(0, digest="a:c"),
        seal(0, slot_end=2 * MINUTE),
        seal(0, reconciliation=9),
    ],
)
def test_what_it_did_not_seal_is_named(other: Seal) -> None:
    assert set(of_comparisons([other, seal(0, slot_start=0)])) == {other}
