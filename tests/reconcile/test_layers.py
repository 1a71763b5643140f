"""Which slots differ, by how far their rows lie apart and by what their events may round to."""

from __future__ import annotations

from typing import Any

import pytest

from tally.reconcile.accounts import Support
from tally.reconcile.layers import Layers, summed
from tally.reconcile.rows.differences import Slot
from tally.reconcile.rows.rounding import STEP


def slot(**given: Any) -> Slot:
    plain: dict[str, Any] = {
        "rows": 2, "stream_rows": 2, "digest": "", "last_end": 0, "same": 2, "other": 0, "close": 0, "apart": [0.0],
        "apart_by": [0.0],
    }  # fmt: skip
    return Slot(**{**plain, **given})


AMOUNT = frozenset({(0, "amount")})
CLOSE = slot(same=1, close=1, apart=[3 * STEP], apart_by=[300 * STEP])


def layers(one: Slot, *supports: Support, single: bool = False) -> Layers:
    behind = supports or [Support(events=2, scale={"amount": 100.0})]
    return Layers(
        sides={}, slots={0: one}, sealed={}, accounts=[], supports={0: behind}, made_of=[AMOUNT], single=single
    )


@pytest.mark.parametrize(
    ("events", "scale", "differs"),
    [
        (3, 0.0, False),  # the share is within what three events may round
        (2, 0.0, True),
        (2, 150.0, False),  # sums that cancel are measured by what was summed
        (2, 149.0, True),
    ],
)
def test_a_slot_differs_where_its_rows_lie_further_apart_than_its_events_may_round(
    events: int, scale: float, differs: bool
) -> None:
    found = layers(CLOSE, Support(events=events, scale={"amount": scale}))
    assert (0 in found.differing) is differs


def test_where_nothing_is_summed_nothing_is_rounding() -> None:
    assert 0 in layers(CLOSE, Support(events=10**6, scale={"amount": 1e9}), single=True).differing
    assert 0 not in layers(slot(), single=True).differing


def test_no_event_hides_in_a_rounding() -> None:
    assert 0 in layers(CLOSE, Support(events=9, differing=True)).differing
    assert 0 not in layers(slot(), Support(events=9, differing=True)).differing, "the rows are the very same"


def test_one_row_of_another_value_is_no_rounding() -> None:
    assert 0 in layers(slot(other=1), Support(events=10**6)).differing


def test_events_of_all_topics_round_together() -> None:
    assert layers(CLOSE, Support(events=1), Support(events=2)).differing == {}


def test_rows_that_differ_by_rounding_count_as_equal_only_where_nothing_else_differs() -> None:
    good = layers(CLOSE, Support(events=3))
    assert (good.equal, good.rounding) == (2, 1)
    bad = layers(slot(same=1, close=1, other=1), Support(events=3))
    assert (bad.equal, bad.rounding) == (1, 0), "the replay tells of the others"


BOTH = [Support(scale={"fare": 5.0, "tip": 7.0}), Support(scale={"paid": 11.0})]


@pytest.mark.parametrize(
    ("made", "size"),
    [
        (frozenset({(0, "fare")}), 5.0),
        (frozenset({(0, "fare"), (1, "paid")}), 5.0 + 11.0),
        (frozenset({(1, "tip")}), 0.0),
        (frozenset(), 0.0),
    ],
)
def test_the_size_of_a_sum_is_that_of_the_columns_that_it_is_made_of(made: Any, size: float) -> None:
    assert summed(made, BOTH) == size
