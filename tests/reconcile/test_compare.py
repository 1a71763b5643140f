"""Which slots a comparison speaks of, and what it says of each: of a window that is not over nothing is sealed."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from comparisons import use_home
from cuts import HOPPING, MINUTE, T0, TUMBLING, cut, micro_batch
from deltalake import CommitProperties, write_deltalake

from tally.base.settings import settings
from tally.control import runs, seals
from tally.control.seals import Seal
from tally.lake import delta
from tally.reconcile.accounts import Support
from tally.reconcile.compare import open_comparison, slot_states, with_counts
from tally.reconcile.comparison import Comparison, CutMark
from tally.reconcile.explain import Explanation
from tally.reconcile.layers import Layers
from tally.reconcile.rows.differences import Slot
from tally.reconcile.rows.digest import NOTHING


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(monkeypatch, tmp_path)


def rows(at: int, *, last_end: int | None = None) -> Slot:
    end = T0 + (at + 1) * MINUTE
    return Slot(
        rows=4, stream_rows=3, digest=f"d{at}", last_end=last_end or end, same=2, other=2, close=0, apart=[],
        apart_by=[],
    )  # fmt: skip


def at(*minutes: int) -> dict[int, Slot]:
    return {T0 + minute * MINUTE: rows(minute) for minute in minutes}


PASSED = cut(micro_batch(0, {0: (0, 9)}, watermark=T0 + 3 * MINUTE))
RANGES = [(T0, T0 + 10 * MINUTE)]


def test_it_speaks_of_the_slots_from_the_first_with_rows_to_the_last() -> None:
    states = slot_states(PASSED, RANGES, at(1, 4), Explanation(), set())
    assert [(one.start - T0) // MINUTE for one in states] == [1, 2, 3, 4]
    assert [(one.rows, one.stream_rows, one.digest) for one in states][:2] == [(4, 3, "d1"), (0, 0, NOTHING)]
    assert slot_states(PASSED, RANGES, {}, Explanation(), set()) == []


def test_empty_slots_after_a_judged_one_are_spoken_of_so_that_seals_leave_no_gap() -> None:
    seals.write(
        [
            Seal(
                pipeline="demand", version="v1", slot_start=T0 - MINUTE, slot_end=T0, state="sealed", revision=1,
                digest="", rows=0, reconciliation=1, changed_at=0,
            )
        ]
    )  # fmt: skip
    states = slot_states(PASSED, RANGES, at(2), Explanation(), set())
    assert [(one.start - T0) // MINUTE for one in states] == [0, 1, 2]


def test_a_sealed_slot_whose_rows_are_gone_is_spoken_of() -> None:
    gone = T0 + 5 * MINUTE
    states = slot_states(PASSED, RANGES, at(4), Explanation(), {gone})
    assert [(one.start - T0) // MINUTE for one in states] == [4, 5]
    assert [(one.unaccounted, one.rows, one.digest) for one in states] == [(0, 4, "d4"), (1, 0, NOTHING)]


def test_what_lies_between_ranges_is_not_spoken_of() -> None:
    apart = [(T0, T0 + 2 * MINUTE), (T0 + 6 * MINUTE, T0 + 9 * MINUTE)]
    states = slot_states(PASSED, apart, at(1, 7), Explanation(), set())
    assert [(one.start - T0) // MINUTE for one in states] == [1, 6, 7]


def test_what_was_explained_goes_to_its_slot() -> None:
    slot = T0 + MINUTE
    found = Explanation(unexplained_by_slot={slot: 2}, events_by_slot={slot: 7})
    (first, second) = slot_states(PASSED, RANGES, at(1, 2), found, set())
    assert [(one.unexplained, one.explained) for one in (first, second)] == [(2, 7), (0, 0)]


def test_a_slot_is_closed_once_the_watermark_has_passed_its_last_window() -> None:
    states = slot_states(PASSED, RANGES, at(0, 1, 2, 3), Explanation(), set())
    assert [one.closed for one in states] == [True, True, True, False]
    longer = {T0: rows(0, last_end=T0 + 3 * MINUTE + 1)}
    assert [one.closed for one in slot_states(PASSED, RANGES, longer, Explanation(), set())] == [False]


def test_an_empty_slot_is_closed_once_a_window_in_it_would_be() -> None:
    wide = cut(micro_batch(0, {0: (0, 9)}, watermark=T0 + 5 * MINUTE), of=HOPPING)
    states = slot_states(wide, RANGES, {T0: rows(0), T0 + 4 * MINUTE: rows(4, last_end=T0 + 7 * MINUTE)},
                         Explanation(), set())  # fmt: skip
    assert [(one.start - T0) // MINUTE for one in states if one.closed] == [0, 1], "its windows are three minutes long"
    assert TUMBLING.window.size != HOPPING.window.size


def test_a_comparison_is_opened_for_what_it_compares() -> None:
    last = micro_batch(4, {0: (9, 12)}, watermark=T0 + 7)
    begun = open_comparison(cut(micro_batch(3, {0: (0, 9)}), last, speed_version=11, batch_version=5), RANGES, "t")
    assert begun.cut == CutMark(batch=4, generation=1, watermark=T0 + 7, speed_version=11)
    row = runs.reconciliation(begun.number)
    assert row is not None and (row.verdict, row.summary, row.slots) == ("comparing", {"ticket": "t"}, [])
    assert (row.from_ms, row.to_ms) == begun.span == RANGES[0]
    assert (begun.batch_version, begun.ticket, begun.windows) == (5, "t", 0)


def test_a_new_control_store_counts_on_from_what_the_audit_table_knows() -> None:
    words = CommitProperties(custom_metadata={"userMetadata": delta.words("audit", reconciliation=41)})
    table = pyarrow.table({"reconciliation": [41]})
    write_deltalake(settings().table("audit", "demand"), table, commit_properties=words)
    assert open_comparison(PASSED, [], "").number == 42
    assert open_comparison(PASSED, [], "").number == 43


def test_rows_of_both_slots_and_replay_are_counted_once() -> None:
    same = Slot(rows=5, stream_rows=5, digest="", last_end=0, same=3, other=0, close=2, apart=[], apart_by=[])
    other = Slot(rows=4, stream_rows=3, digest="", last_end=0, same=1, other=2, close=1, apart=[], apart_by=[])
    both = Layers(
        sides={}, slots={0: same, 1: other}, sealed={}, accounts=[], supports={0: [Support()], 1: [Support()]},
        made_of=[], single=False,
    )  # fmt: skip
    explained = Explanation(different=2, rounding=1, unexplained=1, events={"late": 7})
    found = with_counts(Comparison(number=1, pipeline="p", version="v"), both, explained)
    assert (found.windows, found.equal, found.different, found.rounding) == (9, 7, 2, 3)
    assert (found.unexplained, found.events) == (1, {"late": 7})
