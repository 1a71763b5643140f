"""The evidence is counted anew: each total from the slots and the audit rows, each slot from its own rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from comparisons import STEP, T0, difference, slot

from tally.reconcile.comparison import Comparison
from tally.reconcile.conservation import Balance, Conservation
from tally.reconcile.evidence import COLUMNS, SLOT, by_slot, slot_of, totals

FOUND = Comparison(
    number=1, pipeline="p", version="v", windows=5, equal=3, different=2, unexplained=1,
    conserved=Conservation(records=1, places={"late": 1}),
    ingest={"rides": Balance(balanced=True)},
)  # fmt: skip


def slots(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(SLOT))


def audited(*rows: dict[str, Any]) -> pd.DataFrame:
    found = pd.DataFrame(list(rows), columns=list(COLUMNS)).astype(object)
    found["slot"] = [int(row["window_start"].timestamp() * 1000) for row in rows]
    return found.where(found.notna(), None)


def test_totals_are_those_of_slots_and_audit_rows() -> None:
    rows = audited(
        difference(0, 1, 3, 2, "unexplained"), difference(1, 2, None, 1), {**difference(1, 3, 1, 2), "explained": None}
    )
    rows["slot"] = [T0, T0 + STEP, -1]
    found = totals(FOUND, slots(slot(0, rows=4, bad=2), slot(1, rows=3)), rows)
    assert found == {
        "windows": 5,
        "equal_and_different": 5,
        "rows_of_both_sides": 4 + 3 + 1,
        "different": 2,
        "audit_rows": 3,
        "unexplained": 1,
        "unexplained_audit_rows": 2,
        "unexplained_in_slots": 2,
        "outside_slots": 1,
        "records_conserved": True,
        "topics_out_of_balance": "none",
    }


@pytest.mark.parametrize("conserved", [None, Conservation(records=2, places={"late": 1})])
def test_records_that_nobody_counted_are_not_conserved(conserved: Conservation | None) -> None:
    assert totals(replace(FOUND, conserved=conserved), slots(), audited())["records_conserved"] is False


def test_topics_out_of_balance_are_named() -> None:
    ingest = {"b": Balance(balanced=False), "c": Balance(balanced=True), "a": Balance(balanced=False)}
    assert totals(replace(FOUND, ingest=ingest), slots(), audited())["topics_out_of_balance"] == "a, b"


def test_a_row_that_one_layer_lacks_accounts_for_the_distance_of_its_own_slot() -> None:
    rows = audited(difference(0, 1, 1, None), difference(1, 2, None, 1), difference(1, 3, None, 4))
    found = by_slot(slots(slot(0, rows=2, stream=1), slot(1, rows=1, stream=3), slot(2, rows=5, stream=4)), rows)
    assert found["rows_missing"].tolist() == [1, -2, 1]
    assert found["rows_missing_by_key"].tolist() == [1, -2, 0]


def test_open_slots_are_not_judged() -> None:
    found = by_slot(slots(slot(0), slot(1, closed=False)), audited())
    assert found["start"].tolist() == [T0]


def test_where_one_layer_has_nothing_each_row_needs_a_cause() -> None:
    rows = audited(difference(0, 1, 1, None), difference(1, 2, 1, None, "unexplained"))
    found = by_slot(slots(slot(0, rows=2, stream=0), slot(1, rows=1, stream=0), slot(2, rows=0, stream=0)), rows)
    assert found["one_sided_rows_without_cause"].tolist() == [1, 1, 0]
    empty_batch = by_slot(slots(slot(0, rows=0, stream=3)), audited())
    assert empty_batch["one_sided_rows_without_cause"].tolist() == [3]
    both = by_slot(slots(slot(0, rows=2, stream=1)), audited())
    assert both["one_sided_rows_without_cause"].tolist() == [0], "that is for the keys to tell"


def test_a_difference_lies_in_the_slot_that_its_window_starts_in_or_in_none() -> None:
    known = slots(slot(0), slot(2))
    moments = pd.Series([pd.Timestamp(T0 + ms, unit="ms", tz="UTC") for ms in (0, STEP - 1, STEP, 2 * STEP)])
    assert slot_of(moments, known) == [T0, T0, -1, T0 + 2 * STEP]
    assert slot_of(pd.Series([None], dtype=object), known) == [-1]
    assert slot_of(pd.Series([], dtype=object), slots()) == []
