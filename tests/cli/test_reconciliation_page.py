"""A reconciliation as a person reads it: what differs and why, and what to do next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tally.cli.reconciliation import distinct, next_step, print_report
from tally.jobs.reconcile import Reconciled
from tally.reconcile.comparison import Comparison, Difference, Verdict
from tally.reconcile.seal import Sealed

T0 = 1_790_000_040_000
ROW = Difference(
    window_start="2026-09-21T14:14:00Z", window_end="2026-09-21T14:15:00Z", key={"vendor_id": 2},
    batch={"trips": 3, "takings": 1.5}, stream={"trips": 2, "takings": 1.5}, cause="late",
)  # fmt: skip
FOUND = Comparison(
    number=7, pipeline="trips", version="v1", ranges=[(T0, T0 + 60_000)], windows=9, equal=7, different=2,
    events={"late": 1, "duplicate": 4}, rows=[ROW], state="reconciled",
)  # fmt: skip
NONE_LEFT = Sealed(reconciliation=7, sealed=3, partial=0, held=0, open=1, changed=3, restated_since=0, revisions={1: 3})


def done(found: Comparison = FOUND, verdict: str = "reconciled", **sealed: Any) -> Reconciled:
    judged = Verdict(word=verdict, failed=["a check: seen"] if verdict == "held" else [], page="/page")
    return Reconciled(compared=found, verdict=judged, sealed=replace(NONE_LEFT, **sealed))


def shown(capsys: pytest.CaptureFixture[str], what: Reconciled) -> list[str]:
    print_report(what)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_causes_come_by_number_and_rows_with_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, done())
    assert lines[0] == "trips v1, windows from 2026-09-21T14:14:00Z to 2026-09-21T14:15:00Z"
    assert lines[1] == "9 rows compared: 7 equal, 2 different"
    causes = [line.split()[0] for line in lines if line.startswith(("late ", "duplicate "))]
    assert causes == ["duplicate", "late"]
    assert "2026-09-21T14:14:00Z 2 trips 3 trips 2 late" in lines
    assert "… and 1 more" in lines
    assert "reconciled: 3 slots sealed, 0 held, 1 still open" in lines


def test_what_is_held_says_why_and_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, done(replace(FOUND, unexplained=2), "held", held=2, sealed=1))
    assert "held: 1 slots sealed, 2 held, 1 still open" in lines and "a check: seen" in lines
    assert [line for line in lines if line.startswith("unexplained (rows) 2 ")]
    window = "--from 2026-09-21T14:14:00Z --to 2026-09-21T14:15:00Z"
    assert lines[-1] == f"next: /page; mend the cause, then tally backfill trips {window}"


def test_where_nothing_was_due_there_is_nothing_to_show(capsys: pytest.CaptureFixture[str]) -> None:
    empty = Comparison(number=7, pipeline="trips", version="v1")
    assert shown(capsys, done(empty)) == ["trips: every closed window is sealed already", "next: tally read trips"]


WINDOW = "--from 2026-09-21T14:14:00Z --to 2026-09-21T14:15:00Z"


@pytest.mark.parametrize(
    ("sealed", "words"),
    [
        ({}, f"next: tally read trips {WINDOW}"),
        ({"partial": 1}, "next: tally begin trips shows what may be missing"),
        ({"partial": 1, "restated_since": 1}, f"next: tally reconcile trips {WINDOW}"),
    ],
)
def test_the_next_step_follows_from_what_is_left(sealed: dict[str, int], words: str) -> None:
    assert str(next_step(done(**sealed))).startswith(words)


@pytest.mark.parametrize(
    ("batch", "stream", "sides"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ("b 2", "b 3")),
        ({"a": 1, "b": 2}, None, ("a 1, b 2", "no row")),
        (None, {"a": 0.1 + 0.2}, ("no row", "a 0.3")),
    ],
)
def test_a_row_shows_the_measures_that_differ_or_all_where_a_side_has_none(
    batch: dict[str, Any] | None, stream: dict[str, Any] | None, sides: tuple[str, str]
) -> None:
    assert distinct(batch, stream) == sides
