"""Each equation of a conservation can fail: a record in no place or in two, an offset left out or taken twice."""

from __future__ import annotations

from typing import Any

import pytest

from tally.control.runs import Ingested
from tally.reconcile.conservation import PLACES, Conservation, balance

WHOLE = {place: at + 1 for at, place in enumerate(PLACES)}
RECORDS = sum(WHOLE.values())


def test_records_are_balanced_where_each_is_in_one_place() -> None:
    assert Conservation(records=RECORDS, places=WHOLE).balanced
    assert Conservation(records=0, places={}).balanced


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("by", [-1, 1])
def test_one_record_more_or_less_in_any_place_is_seen(place: str, by: int) -> None:
    assert not Conservation(records=RECORDS, places={**WHOLE, place: WHOLE[place] + by}).balanced


def test_a_record_in_a_place_that_is_none_is_not_accounted_for() -> None:
    assert not Conservation(records=RECORDS + 1, places={**WHOLE, "elsewhere": 1}).balanced


def ingest(start: int, to: int, **given: Any) -> Ingested:
    row: dict[str, Any] = {"ranges": {0: (start, to)}, "archived": to - start, "quarantined": {}, "gaps": 0}
    return Ingested(topic="rides", seq=0, delta_version=0, committed_at=0, **{**row, **given})


GOOD = [
    ingest(0, 10, archived=6, quarantined={"empty": 3}, gaps=1),
    ingest(10, 15, archived=2, quarantined={"empty": 1, "future": 2}),
]


def test_ingests_balance_where_each_offset_is_archived_refused_or_a_gap() -> None:
    found = balance(GOOD)
    assert (found.records, found.archived, found.gaps, found.balanced) == (15, 8, 1, True)
    assert found.quarantined == {"empty": 4, "future": 2}
    assert balance([]).balanced


@pytest.mark.parametrize(
    "history",
    [
        [ingest(0, 10, archived=9)],
        [ingest(0, 10, archived=11)],
        [ingest(0, 10, archived=9, quarantined={"empty": 2})],
        [ingest(0, 10, gaps=1)],
        [ingest(0, 10, archived=11, gaps=-1)],
        [ingest(0, 10), ingest(11, 15)],
        [ingest(0, 10), ingest(9, 15)],
    ],
    ids=[
        "one is lost", "one is there twice", "one is refused and archived", "a gap that holds a record",
        "fewer gaps than none", "an offset between ingests", "an offset in two ingests",
    ],
)  # fmt: skip
def test_an_offset_too_few_or_too_many_is_seen(history: list[Ingested]) -> None:
    assert not balance(history).balanced
