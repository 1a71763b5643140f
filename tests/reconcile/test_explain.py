"""Which cause a differing row is given: those of the events in its own slots, and of its own key where one is known."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import pytest
from cuts import HOPPING, MINUTE, SESSION, T0, TUMBLING, cut, declared

from tally.catalog.declare import tumbling
from tally.kinds import fates
from tally.reconcile.explain import Behind, Cells, cause_of, difference, key_columns, slots

CELLS: Cells = {
    (T0, 1): {"late"},
    (T0, 2): {"late", "duplicate", "in_flight", "split", "applied_twice"},
    (T0 + MINUTE, 1): {"skipped"},
}


@pytest.mark.parametrize(
    ("minute", "key", "cause"),
    [
        (0, (1,), "late"),
        (0, (2,), "applied_twice+duplicate+in_flight+late+split"),
        (1, (1,), "skipped"),
        (1, (2,), ""),
        (2, (1,), ""),
        (0, (3,), ""),
    ],
)
def test_a_row_has_the_causes_of_its_slot_and_key(minute: int, key: tuple[int], cause: str) -> None:
    slot = T0 + minute * MINUTE
    assert cause_of(cut(), CELLS, slot, slot + MINUTE, key) == cause


def test_where_no_event_tells_its_key_a_row_has_the_causes_of_its_slot() -> None:
    assert cause_of(cut(), {(T0,): {"late"}, (T0 + MINUTE,): {"skipped"}}, T0, T0 + MINUTE, ()) == "late"


def test_a_session_has_the_causes_of_all_slots_that_it_spans() -> None:
    gap = 2 * MINUTE
    start = T0 // gap * gap
    cells: Cells = {(start, 1): {"late"}, (start + gap, 1): {"split"}, (start + 2 * gap, 1): {"skipped"}}
    assert cause_of(cut(of=SESSION), cells, start, start + 2 * gap, (1,)) == "late+split"


def test_an_event_is_part_of_every_window_that_overlaps_its_cell() -> None:
    assert list(slots(cut(), T0, first=True)) == [T0]
    assert list(slots(cut(of=HOPPING), T0, first=True)) == [T0 - 2 * MINUTE, T0 - MINUTE, T0]


def test_a_key_is_known_per_event_where_the_topic_has_all_of_its_columns() -> None:
    topic = TUMBLING.reads[0]
    assert key_columns(cut(), topic) == ["shop"]
    assert key_columns(cut(of=declared(tumbling("1 minute"), key="made")), topic) == []


def test_the_slots_of_a_cause_are_those_with_an_event_of_it() -> None:
    behind = Behind(events=Counter(), cells=CELLS, by_slot=Counter())
    assert behind.touched_by(fates.SKIPPED) == {T0 + MINUTE}
    assert behind.touched_by(fates.LATE) == {T0}


def test_a_differing_row_is_shown_with_its_window_key_and_measures() -> None:
    row = {
        "_slot": T0, "window_start": datetime.fromtimestamp(T0 / 1000), "shop": 3, "cause": "late",
        "window_end": datetime.fromtimestamp((T0 + MINUTE) / 1000),
        "batch": {"_": 1, "n": 2, "total": float("nan")}, "stream": None,
    }  # fmt: skip
    shown = difference(row, cut())
    assert (shown.window_start, shown.window_end) == ("2026-09-21T14:14:00Z", "2026-09-21T14:15:00Z")
    assert (shown.key, shown.batch, shown.stream) == ({"shop": 3}, {"n": 2, "total": "NaN"}, None)
    assert difference({**row, "window_start": None}, cut()).window_start == "2026-09-21T14:14:00Z"
