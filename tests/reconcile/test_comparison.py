"""A comparison is kept as JSON and read back as it was; what an older store did not keep is nowhere made up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparisons import use_home

from tally.control import runs
from tally.reconcile import comparison
from tally.reconcile.comparison import Comparison, CutMark, Difference, SlotState, Verdict
from tally.reconcile.conservation import PLACES, Balance, Conservation

MINUTE = 60_000
T0 = 1_790_000_040_000
SLOTS = (
    SlotState(start=T0, end=T0 + MINUTE, rows=3, stream_rows=2, digest="a", closed=True, unexplained=1, explained=4),
    SlotState(start=T0 + MINUTE, end=T0 + 2 * MINUTE, rows=2, stream_rows=5, digest="b", unaccounted=1),
)
FOUND = Comparison(
    number=1,
    pipeline="demand",
    version="v1",
    ranges=((T0, T0 + MINUTE), (T0 + 3 * MINUTE, T0 + 4 * MINUTE)),
    ticket="dag/run/-1",
    windows=9,
    equal=7,
    different=2,
    rounding=1,
    events={"late": 2, "duplicate": 1},
    unexplained=1,
    rows=(
        Difference(
            window_start="2026-09-21T14:14:00Z", window_end="2026-09-21T14:15:00Z", key={"shop": 3},
            batch={"n": 2}, stream=None, cause="late",
        ),
    ),
    conserved=Conservation(records=5, places={"aggregated": 3, "late": 2}),
    ingest={"orders": Balance(records=6, archived=5, quarantined={"empty": 1}, gaps=0, balanced=True)},
    cut=CutMark(batch=3, generation=1, watermark=T0 + 1, speed_version=7),
    batch_version=4,
    archive={"orders": 2},
    slots=SLOTS,
)  # fmt: skip


@pytest.fixture
def number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    use_home(monkeypatch, tmp_path)
    return runs.open_reconciliation("demand", "v1", *FOUND.span, "dag/run/-1")


def as_read(found: Comparison) -> Comparison:
    """With lists where JSON has them."""
    return replace(found, ranges=list(found.ranges), rows=list(found.rows), slots=list(found.slots))


def test_what_is_kept_is_read_back_the_same(number: int) -> None:
    comparison.keep(FOUND)
    assert replace(comparison.of(number), conserved=FOUND.conserved) == as_read(FOUND)
    conserved = comparison.of(number).conserved
    assert conserved is not None and (conserved.records, conserved.balanced) == (5, True)
    verdict = Verdict(word="held", failed=("a", "b"), page="/p", holds_all=False, held_slots=frozenset({T0}))
    comparison.keep_judged(FOUND.judged(verdict, "/index"))
    judged = comparison.of(number, ready=("held",))
    assert (judged.verdict, judged.state, judged.data_docs) == (verdict, "held", "/index")
    assert (judged.events, judged.slots) == (FOUND.events, list(FOUND.slots))


def test_the_kept_document_has_the_shape_that_readers_know() -> None:
    said = json.loads(json.dumps(FOUND.as_json()))
    assert list(said) == [
        "pipeline", "version", "from", "to", "ranges", "ticket", "windows", "equal", "different", "rounding", "events",
        "unexplained", "rows", "open_windows", "conservation", "ingest", "cut", "batch_version", "archive", "verdict",
    ]  # fmt: skip
    assert (said["from"], said["to"], said["verdict"]) == ("2026-09-21T14:14:00Z", "2026-09-21T14:18:00Z", "compared")
    assert list(said["events"]) == ["duplicate", "late"] and said["open_windows"] == 5
    assert said["rows"] == [
        {
            "window_start": "2026-09-21T14:14:00Z", "window_end": "2026-09-21T14:15:00Z", "shop": 3, "batch": {"n": 2},
            "stream": None, "cause": "late",
        }
    ]  # fmt: skip
    assert list(said["conservation"]) == ["records", *PLACES, "balanced"]
    assert said["ingest"]["orders"] == {
        "records": 6, "archived": 5, "quarantined": {"empty": 1}, "gaps": 0, "balanced": True
    }  # fmt: skip
    assert said["cut"] == {"batch": 3, "generation": 1, "watermark": "2026-09-21T14:14:00.001Z", "speed_version": 7}
    assert [list(slot.as_json()) for slot in SLOTS] == [
        ["start", "end", "rows", "stream_rows", "digest", "closed", "unexplained", "explained", "unaccounted"]
    ] * 2
    judged = FOUND.judged(Verdict(word="held", held_slots=frozenset({3, 1})), "").as_json()
    assert list(judged)[-5:] == ["verdict", "failed", "data_docs_page", "holds_all", "held_slots"]
    assert (judged["verdict"], judged["held_slots"]) == ("held", [1, 3])


def test_where_nothing_was_due_there_is_no_range() -> None:
    empty = Comparison(number=1, pipeline="demand", version="v1")
    assert (empty.as_json()["from"], empty.as_json()["to"], empty.span) == (None, None, (0, 0))


def test_what_an_older_store_did_not_keep_vouches_for_nothing(number: int) -> None:
    runs.keep_comparison(number, {"windows": 3}, [{"start": T0, "end": T0 + MINUTE, "closed": True}])
    old = comparison.of(number)
    assert (old.windows, old.archive, old.conserved, old.verdict) == (3, None, None, None)
    assert not old.clears(old.slots[0]), "nobody judged it"
    assert "archive" not in old.as_json()


@pytest.mark.parametrize(
    ("verdict", "slot", "clears"),
    [
        (Verdict(word="reconciled"), {}, True),
        (Verdict(word="held"), {}, True),
        (Verdict(word="held", holds_all=True), {}, False),
        (Verdict(word="held", held_slots=frozenset({T0})), {}, False),
        (Verdict(word="held", held_slots=frozenset({T0 + MINUTE})), {}, True),
        (Verdict(word="reconciled"), {"unexplained": 1}, False),
    ],
)
def test_a_slot_is_cleared_where_neither_it_nor_all_are_held(
    verdict: Verdict, slot: dict[str, Any], clears: bool
) -> None:
    state = SlotState(start=T0, end=T0 + MINUTE, closed=True, **slot)
    assert FOUND.judged(verdict, "").clears(state) is clears
