"""The inbox of a topic: what micro-batches came to, the clock after the newest, and one row a pipeline after a fold."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tally.control import leases
from tally.speed.shared import inbox as inboxes
from tally.speed.shared.clock import Clock, Seen
from tally.speed.shared.inbox import Inbox, Taken

ONE, OTHER = ("one", "v1"), ("other", "v1")


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inbox:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    return known_again()


def known_again() -> Inbox:
    """The inbox for its one writer, of whose lease it is."""
    return Inbox("rides", 1, leases.take("inbox/rides"))


def taken(batch: int) -> Taken:
    clock = Clock(watermark=1000 * batch, seen={0: Seen(event=5, record=6, first=6)}, begun=4)
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
    assert known_again().newest() == taken(1), "out of the commit's own words"


def test_who_lost_its_lease_writes_nothing_any_more(inbox: Inbox) -> None:
    inbox.take(taken(0), {ONE: table(1)})
    other = known_again()
    for write in (
        lambda: inbox.take(taken(1), {ONE: table(2)}),
        lambda: inbox.take_late(0, OTHER, table(3)),
        lambda: inbox.fold(taken(0), {ONE: table(4)}),
    ):
        with pytest.raises(leases.Fenced, match="writes this table now"):
            write()
    assert other.newest() == taken(0) == inbox.newest() and held(other, ONE) == [(0, [1])] and not held(other, OTHER)


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
    again = known_again()
    assert again.newest() == taken(2)
    again.take(taken(3), {ONE: table(3)})
    assert held(inbox, ONE) == [(2, [0, 1, 2]), (3, [3])]
    assert len(DeltaTable(inbox.path).file_uris()) == 2


def test_what_folds_replaced_goes_from_the_log_and_from_the_disk(inbox: Inbox) -> None:
    """Also of an inbox that an older make began, whose properties keep all for a week."""
    inbox.take(taken(0), {ONE: table(0)})
    older = dict.fromkeys((name for name in inboxes.PROPERTIES if "Duration" in name), "interval 1 weeks")
    DeltaTable(inbox.path).alter.set_table_properties(older)
    for batch in range(1, 40):
        inbox.take(taken(batch), {ONE: table(batch)})
        if batch % 10 == 0:
            inbox.fold(taken(batch), {ONE: table(*range(batch))})
            before = time.time() - 2 * inboxes.KEPT_SECONDS
            for file in [*Path(inbox.path).glob("*.parquet"), *Path(inbox.path).glob("_delta_log/*")]:
                os.utime(file, (before, before))
    assert len(list(Path(inbox.path).glob("*.parquet"))) <= 20 and len(list(Path(inbox.path).glob("_delta_log/*"))) < 30
    assert held(inbox, ONE) == held(known_again(), ONE) == [(30, [*range(30)]), *((b, [b]) for b in range(31, 40))]
    assert DeltaTable(inbox.path).metadata().configuration.items() >= inboxes.PROPERTIES.items()
    assert known_again().newest() == taken(39)
