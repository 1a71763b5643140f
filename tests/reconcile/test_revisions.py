"""A seal's next revision differs from it by events that arrived since, and by nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparisons import use_home
from cuts import HOPPING, MINUTE, T0, TUMBLING, cut

from tally.control import runs, seals
from tally.control.seals import Seal
from tally.reconcile import revisions
from tally.reconcile.accounts import Support
from tally.reconcile.rows.differences import Slot
from tally.reconcile.rows.digest import NOTHING


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_home(monkeypatch, tmp_path)


def seal(minute: int = 0, **given: Any) -> Seal:
    start = T0 + minute * MINUTE
    plain = Seal(
        pipeline="demand", version="v1", slot_start=start, slot_end=start + MINUTE, state="sealed", revision=1,
        digest="1,2:3", rows=1, reconciliation=1, changed_at=0,
    )  # fmt: skip
    return replace(plain, **given)


def slot(digest: str) -> Slot:
    return Slot(
        rows=1, stream_rows=1, digest=digest, last_end=T0 + MINUTE, same=1, other=0, close=0, apart=[], apart_by=[]
    )


def compared(seq: int | None) -> int:
    """A comparison that knew ingests up to this one; None: it did not keep that."""
    number = runs.open_reconciliation("demand", "v1", T0, T0 + MINUTE, "")
    runs.keep_comparison(number, {} if seq is None else {"archive": {"orders": seq}}, [])
    return number


@pytest.mark.parametrize(
    ("state", "digest", "kept"),
    [
        ("sealed", "1,2:3", True),
        ("sealed", "1,2:4", False),  # alike, and changed behind the seal's back
        ("unsealed", "1,2:4", True),  # stated again from the same events
        ("unsealed", "1,9:4", True),
        ("unsealed", "8,9:3", False),
        ("sealed", "8,9:3", False),
    ],
)
def test_rows_are_those_of_a_seal_to_the_last_bit_unless_they_were_stated_again(
    state: str, digest: str, kept: bool
) -> None:
    assert revisions.kept(seal(state=state), digest) is kept


@pytest.mark.parametrize(
    ("known", "newest", "found"),
    [
        (4, 4, True),  # the seal knew that ingest
        (4, 5, False),
        (4, -1, True),
        (None, 4, False),  # an older store did not keep it
    ],
)
def test_a_change_needs_an_event_that_came_after_the_seal(known: int | None, newest: int, found: bool) -> None:
    sealed = {T0: seal(reconciliation=compared(known))}
    supports = {T0: [Support(events=1, newest=newest)]}
    assert revisions.unaccounted(cut(), sealed, {T0: slot("8,9:7")}, supports) == ({T0} if found else set())
    assert revisions.unaccounted(cut(), sealed, {T0: slot("1,2:3")}, supports) == set(), "the very same rows"


def test_a_slot_whose_rows_are_all_gone_has_changed() -> None:
    supports = {T0: [Support(newest=0)]}
    sealed = {T0: seal(reconciliation=compared(0))}
    assert revisions.unaccounted(cut(), sealed, {}, supports) == {T0}
    assert revisions.unaccounted(cut(), {T0: replace(sealed[T0], digest=NOTHING)}, {}, supports) == set()


def test_of_a_range_those_are_known_that_start_in_it() -> None:
    seals.write([seal(minute) for minute in range(6)])
    wanted = [(T0 + MINUTE, T0 + 2 * MINUTE), (T0 + 3 * MINUTE, T0 + 5 * MINUTE)]
    assert [(one.slot_start - T0) // MINUTE for one in revisions.judged(TUMBLING, wanted)] == [1, 3, 4]
    assert list(revisions.judged(TUMBLING, [])) == []


def test_only_a_slot_that_was_sealed_owes_anything() -> None:
    states = [
        seal(0), seal(1, state="unsealed"), seal(2, state="held"), seal(3, state="partial", revision=0),
        seal(4, digest=""), seal(5, state="unsealed", revision=0),
    ]  # fmt: skip
    seals.write(states)
    found = revisions.sealed(TUMBLING, [(T0, T0 + 9 * MINUTE)])
    assert [(slot - T0) // MINUTE for slot in found] == [0, 1]


def test_the_windows_of_a_slot_without_rows_reach_as_far_as_one_may() -> None:
    found = revisions.with_windows(cut(of=HOPPING), {T0: T0 + 7}, {T0: seal(0), T0 + MINUTE: seal(1)})
    assert found == {T0: T0 + 7, T0 + MINUTE: T0 + 5 * MINUTE}
