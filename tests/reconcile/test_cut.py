"""Where the layers are compared: what is closed there, what is due, and which micro-batches are needed for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from comparisons import use_home
from cuts import HOPPING, MINUTE, SESSION, T0, cut, micro_batch, restatement

from tally.control import ledger, seals
from tally.control.seals import Seal
from tally.reconcile import cut as cuts
from tally.reconcile.cut import archived, closed, due, reaching_back


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(monkeypatch, tmp_path)
    monkeypatch.delenv("TALLY_SETTLE", raising=False)


def at_minute(number: int, **given: object) -> cuts.Cut:
    return cut(micro_batch(0, {0: (0, 9)}, watermark=T0 + number * MINUTE), **given)  # type: ignore[arg-type]


def test_a_window_is_closed_where_the_watermark_has_reached_its_end() -> None:
    assert at_minute(3).closed(T0 + 3 * MINUTE) and not at_minute(3).closed(T0 + 3 * MINUTE + 1)


def test_a_session_stays_open_for_a_gap_longer() -> None:
    assert at_minute(5, of=SESSION).watermark == T0 + 3 * MINUTE


def test_the_setting_keeps_windows_open_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_SETTLE", "1 minute")
    assert at_minute(5).watermark == T0 + 4 * MINUTE


@pytest.mark.parametrize(("watermark", "starts"), [(3 * MINUTE - 1, 2), (3 * MINUTE, 3), (3 * MINUTE + 1, 3)])
def test_closed_starts_are_those_of_windows_that_ended(watermark: int, starts: int) -> None:
    one = cut(micro_batch(0, {0: (0, 9)}, watermark=T0 + watermark))
    assert one.closed_starts == T0 + starts * MINUTE
    last = one.closed_starts - MINUTE
    assert one.closed(last + MINUTE) and not one.closed(one.closed_starts + MINUTE)


def test_of_longer_windows_fewer_are_closed() -> None:
    assert at_minute(5, of=HOPPING).closed_starts == T0 + 3 * MINUTE


def test_of_ranges_what_is_closed_is_cut_off_at_the_watermark() -> None:
    ranges = [(T0, T0 + MINUTE), (T0 + 2 * MINUTE, T0 + 6 * MINUTE), (T0 + 8 * MINUTE, T0 + 9 * MINUTE)]
    assert closed(at_minute(4), ranges) == [(T0, T0 + MINUTE), (T0 + 2 * MINUTE, T0 + 4 * MINUTE)]
    assert closed(at_minute(0), ranges) == []


def seal(minute: int, state: str) -> Seal:
    start = T0 + minute * MINUTE
    return Seal(
        pipeline="demand", version="v1", slot_start=start, slot_end=start + MINUTE, state=state, revision=1, digest="",
        rows=0, reconciliation=1, changed_at=0,
    )  # fmt: skip


def test_due_is_what_is_stated_and_closed_and_neither_sealed_nor_partial() -> None:
    seals.write([seal(0, "partial"), seal(1, "sealed"), seal(2, "held"), seal(3, "unsealed")])
    stated = restatement(covered=[(T0, T0 + 9 * MINUTE)], stale=[(T0 + 4 * MINUTE, T0 + 5 * MINUTE)])
    assert due(at_minute(6, stated=stated)) == [
        (T0 + 2 * MINUTE, T0 + 4 * MINUTE),
        (T0 + 5 * MINUTE, T0 + 6 * MINUTE),
    ]


@pytest.mark.parametrize(
    ("ends", "holds"), [({0: 10, 1: 4}, True), ({0: 9, 1: 4}, False), ({0: 10}, False), ({}, False)]
)
def test_a_micro_batch_is_archived_where_every_offset_of_it_is(ends: dict[int, int], holds: bool) -> None:
    batch = micro_batch(0, {0: (5, 10), 1: (0, 4)})
    assert archived(batch, restatement(ends={"orders": ends})) is holds


def kept(count: int) -> cuts.Cut:
    """A ledger of so many micro-batches of ten offsets of partition 0, cut after the last."""
    batches = [micro_batch(at, {0: (at * 10, at * 10 + 10)}) for at in range(count)]
    ledger.record(batches)
    return cut(batches[-1])


def test_the_ledger_is_read_from_the_micro_batch_on_that_held_the_first_offset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts, "MARGIN", 2)
    last = kept(12)
    found = reaching_back(last, {"orders": {0: 73}})
    assert [batch.batch for batch in found.batches] == [5, 6, 7, 8, 9, 10, 11], "two more than those of offset 73"
    assert reaching_back(last, {"orders": {0: 70}}).batches == found.batches
    assert reaching_back(last, {"orders": {0: 69}}).batches[0].batch == 4
    assert reaching_back(last, {}).batches[0].batch == 9, "nothing is looked for"
    assert reaching_back(last, {"orders": {0: 3}}).batches[0].batch == 0


def test_of_several_partitions_the_one_that_lies_furthest_back_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MARGIN", 0)
    batches = [micro_batch(at, {0: (at * 10, at * 10 + 10), 1: (at, at + 1)}) for at in range(9)]
    ledger.record(batches)
    found = reaching_back(cut(batches[-1]), {"orders": {0: 71, 1: 4}})
    assert found.batches[0].batch == 4 and found.last == batches[-1]


def test_micro_batches_of_another_generation_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    last = kept(3)
    ledger.record([replace(last.last, generation=2, batch=0)])
    assert {batch.generation for batch in reaching_back(last, {}).batches} == {1}
