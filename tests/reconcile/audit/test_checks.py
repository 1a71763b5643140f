"""How an audit narrows down what is lost, and which days and events it reads; without Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from reconcile.cuts import HOPPING, MINUTE, T0, TUMBLING

from tally.control.seals import Seal
from tally.reconcile.audit import checks
from tally.reconcile.audit.checks import HOUR, Faults, add, around, days_of, narrowed, of_a_file


def seal(start: int, size: int = MINUTE) -> Seal:
    return Seal(
        pipeline="demand", version="v1", slot_start=start, slot_end=start + size, state="sealed", revision=1, digest="",
        rows=0, reconciliation=1, changed_at=0,
    )  # fmt: skip


HOURS = [seal(T0 + at * HOUR, HOUR) for at in range(64)]


def losing(*lost: int) -> tuple[Callable[[Sequence[Seal]], str], list[int]]:
    """A look that fails where it holds one of these hours, and how many slots each look was at."""
    looks: list[int] = []

    def fault_of(some: Sequence[Seal]) -> str:
        looks.append(len(some))
        return "lost" if {HOURS[at] for at in lost} & set(some) else ""

    return fault_of, looks


def test_where_nothing_is_lost_there_is_one_look() -> None:
    fault_of, looks = losing()
    assert narrowed(HOURS, fault_of, [0]) == {} and looks == [64]


@pytest.mark.parametrize("lost", [(0,), (63,), (17, 40), (5, 6, 7)])
def test_only_the_hours_that_are_lost_fail(lost: tuple[int, ...]) -> None:
    fault_of, looks = losing(*lost)
    assert narrowed(HOURS, fault_of, [0]) == {HOURS[at]: "lost" for at in lost}
    assert len(looks) < 30


def test_slots_of_one_hour_are_not_told_apart() -> None:
    minutes = [seal(T0 + at * MINUTE) for at in range(60)]
    looks: list[int] = []

    def fault_of(some: Sequence[Seal]) -> str:
        looks.append(len(some))
        return "lost" if minutes[3] in some else ""

    assert set(narrowed(minutes, fault_of, [0])) == set(minutes) and looks == [60]


def test_what_fails_only_together_fails_together() -> None:
    fails = narrowed(HOURS, lambda some: "lost" if len(some) == 64 else "", [0])
    assert set(fails) == set(HOURS)


def test_where_much_is_lost_more_is_held_and_the_looks_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MOST_PASSES", 10)
    lost = range(0, 64, 2)
    fault_of, looks = losing(*lost)
    found = narrowed(HOURS, fault_of, [0])
    assert {HOURS[at] for at in lost} < set(found)
    assert len(looks) < 20


def test_what_two_checks_found_of_a_slot_is_told_together() -> None:
    first, second = seal(T0), seal(T0 + MINUTE)
    found: Faults = {first: "rows changed"}
    add(found, {first: "archive changed", second: "gone"})
    assert found == {first: "rows changed; archive changed", second: "gone"}


def test_a_slot_lies_on_every_day_that_it_touches() -> None:
    midnight = 1_790_035_200_000
    assert days_of(seal(midnight)) == [date(2026, 9, 22)]
    assert days_of(seal(midnight - MINUTE)) == [date(2026, 9, 21)], "it ends where the day does"
    assert days_of(seal(midnight - 1, 2)) == [date(2026, 9, 21), date(2026, 9, 22)]


def test_events_are_read_as_far_as_their_copies_may_lie() -> None:
    lateness = MINUTE
    assert around(TUMBLING, 0, [seal(T0)]) == [(T0 - lateness, T0 + 2 * MINUTE + lateness)]
    assert around(HOPPING, 0, [seal(T0)]) == [(T0 - lateness, T0 + 4 * MINUTE + lateness)]
    apart = around(TUMBLING, 0, [seal(T0), seal(T0 + 9 * MINUTE)])
    assert len(apart) == 2


def test_only_a_file_that_cannot_be_read_says_something_of_what_was_sealed() -> None:
    assert of_a_file(RuntimeError("[FAILED_READ_FILE.FILE_NOT_EXIST] x"))
    assert not of_a_file(RuntimeError("Job aborted: out of memory"))
