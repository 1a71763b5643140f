"""The inbox of a topic: what micro-batches came to, the clock after the newest, and one row a pipeline after a fold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tally.speed.shared.clock import Clock, Seen
from tally.speed.shared.inbox import Inbox, Taken

ONE, OTHER = ("one", "v1"), ("other", "v1")


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    return Inbox("rides", 1)


def taken(batch: int) -> Taken:
    clock = Clock(watermark=1000 * batch, seen={0: Seen(event=5, record=6)}, begun=4)
    return Taken(generation=1, batch=batch, ranges={"rides": {0: (batch, batch + 1)}}, late_watermark=7, clock=clock)


def table(*values: int) -> pa.Table:
    return pa.table({"b0": pa.array(values, pa.int64())})


def held(inbox: Inbox, place: tuple[str, str]) -> list[tuple[int, list[int]]]:
    return [(row.batch, row.totals["b0"].to_pylist()) for row in inbox.rows(*place)]


def test_the_newest_micro_batch_is_known_again_with_its_clock(inbox: Inbox) -> None:
    assert inbox.newest() is None
    inbox.take(taken(0), {ONE: table(1)})
    inbox.take(taken(1), {})
    assert inbox.newest() == taken(1)
    assert Inbox("rides", 1).newest() == taken(1), "out of the commit's own words"


def test_each_pipeline_has_its_rows_oldest_first(inbox: Inbox) -> None:
    inbox.take(taken(0), {ONE: table(1), OTHER: table(10, 11)})
    inbox.take(taken(1), {OTHER: table(12)})
    inbox.take_late(1, ONE, table(2))
    assert held(inbox, ONE) == [(0, [1]), (1, [2])]
    assert held(inbox, OTHER) == [(0, [10, 11]), (1, [12])]
    assert held(inbox, ("one", "v2")) == []


def test_a_fold_leaves_a_row_of_each_that_took_part_and_all_of_the_others(inbox: Inbox) -> None:
    for batch in range(3):
        inbox.take(taken(batch), {ONE: table(batch), OTHER: table(10 + batch)})
    inbox.fold(taken(2), {ONE: table(0, 1, 2)})
    assert held(inbox, ONE) == [(2, [0, 1, 2])]
    assert held(inbox, OTHER) == [(0, [10]), (1, [11]), (2, [12])]
    assert Inbox("rides", 1).newest() == taken(2)
    inbox.take(taken(3), {ONE: table(3)})
    assert held(inbox, ONE) == [(2, [0, 1, 2]), (3, [3])]
    assert len(DeltaTable(inbox.path).file_uris()) == 2
