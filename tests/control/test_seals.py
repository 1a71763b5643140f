"""What is asked of the seals at each look is worked out by the database: their number grows for as long as a stream."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.event import listen

from tally.control import seals
from tally.control.seals import Seal
from tally.control.store import store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


def slot(start: int, state: str = "sealed", *, version: str = "v1", reconciliation: int = 1) -> Seal:
    return Seal(
        pipeline="trips", version=version, slot_start=start, slot_end=start + 60, state=state, revision=1, digest="",
        rows=1, reconciliation=reconciliation, changed_at=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("slots", "end"),
    [
        ([], None),
        ([slot(60, "held")], None),
        ([slot(120), slot(60)], 180),
        ([slot(60), slot(120, "unsealed"), slot(180)], 120),
        ([slot(60), slot(180)], 120),
        ([slot(0, "held", version="v0"), slot(60)], 120),
        ([slot(60, "partial"), slot(120)], 180),
        ([slot(60, "partial"), slot(120), slot(180, "partial"), slot(240)], 180),
        ([slot(60, "partial"), slot(120, "held")], None),
        ([slot(60, "partial")], None),
    ],
)
def test_sealed_to_is_the_end_of_the_first_unbroken_run(slots: list[Seal], end: int | None) -> None:
    seals.write(slots)
    assert seals.sealed_to("trips", "v1") == end


def test_held_slots_name_the_comparisons_that_hold_them() -> None:
    seals.write([slot(0, "held", reconciliation=3), slot(60, "held", reconciliation=3), slot(120, reconciliation=4)])
    seals.write([slot(180, "held", version="v0", reconciliation=5)])
    assert seals.held_by("trips", "v1") == {3}


def test_unsealing_takes_what_starts_in_the_ranges_and_keeps_only_sealed_digests() -> None:
    states = ["sealed", "held", "partial", "unsealed", "sealed", "sealed"]
    seals.write([replace(slot(60 * at, state), digest=f"d{at}") for at, state in enumerate(states)])
    seals.write([slot(0, version="v0")])
    assert seals.unseal("trips", "v1", [(120, 180), (0, 100), (50, 60), (170, 240), (300, 300), (301, 400)]) == 3
    found = [(seal.state, seal.digest) for seal in seals.read("trips", "v1")]
    gone = [("unsealed", "d0"), ("unsealed", ""), ("unsealed", ""), ("unsealed", "d3")]
    assert found == [*gone, ("sealed", "d4"), ("sealed", "d5")]
    assert seals.read("trips", "v0")[0].state == "sealed"
    assert seals.unseal("trips", "v1", []) == 0


def test_unsealing_thirty_thousand_scattered_slots_is_a_few_statements() -> None:
    seals.write(slot(60 * at) for at in range(60_000))
    said: list[str] = []
    listen(store(), "before_cursor_execute", lambda _c, _k, text, *_: said.append(text))
    assert seals.unseal("trips", "v1", [(120 * at, 120 * at + 60) for at in range(30_000)]) == 30_000
    assert len([text for text in said if "seals" in text]) < 100
    assert seals.counts("trips", "v1") == {"sealed": 30_000, "unsealed": 30_000}
