"""What is asked of the seals at each look is worked out by the database: their number grows for as long as a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from tally.control import seals
from tally.control.seals import Seal


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
    ],
)
def test_sealed_to_is_the_end_of_the_first_unbroken_run(slots: list[Seal], end: int | None) -> None:
    seals.write(slots)
    assert seals.sealed_to("trips", "v1") == end


def test_held_slots_name_the_comparisons_that_hold_them() -> None:
    seals.write([slot(0, "held", reconciliation=3), slot(60, "held", reconciliation=3), slot(120, reconciliation=4)])
    seals.write([slot(180, "held", version="v0", reconciliation=5)])
    assert seals.held_by("trips", "v1") == {3}
