"""What stands behind a slot, and that each equation of a conservation can fail."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from comparisons import T0, use_home
from deltalake import write_deltalake

from tally.base.duration import from_millis
from tally.catalog.declare import topic
from tally.control import runs
from tally.kinds.session_scope import Cells
from tally.reconcile.accounts import Account, conservation, of_rows
from tally.reconcile.rows.rounding import STEP, most
from tally.sources import archive

MINUTE = 60_000
ORDERS = topic("orders", schema="at TIMESTAMP, amount DOUBLE", event_time="at", lateness="1 minute")


def row(cell: int, place: str, events: int, *, newest: int = 0, differing: bool = False) -> dict[str, Any]:
    return {
        "cell": T0 + cell * MINUTE, "place": place, "events": events, "scale amount": events * 2.0, "newest": newest,
        "differing": differing,
    }  # fmt: skip


def test_what_lies_in_a_range_of_cells_is_added_up() -> None:
    account = of_rows(
        [row(0, "aggregated", 3), row(0, "late", 1, newest=4, differing=True), row(1, "aggregated", 5, newest=2)],
        ["amount"],
    )
    assert account.places == {"aggregated": 8, "late": 1}
    first, both = account.within(T0, T0 + MINUTE), account.within(T0, T0 + 2 * MINUTE)
    assert (first.events, first.scale, first.newest, first.differing) == (4, {"amount": 8.0}, 4, True)
    assert (both.events, both.newest) == (9, 4)
    second = account.within(T0 + MINUTE, T0 + 2 * MINUTE)
    assert (second.events, second.newest, second.differing) == (5, 2, False)
    nothing = account.within(T0 + 2 * MINUTE, T0 + 9 * MINUTE)
    assert (nothing.events, nothing.newest) == (0, -1)


def test_more_events_may_round_more_and_never_beyond_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most(0) == most(1) == STEP
    assert most(1000) == 1000 * STEP
    monkeypatch.setenv("TALLY_TOLERANCE", "1e-14")
    assert most(1_000_000) == 1e-14


def test_a_range_is_widened_to_the_sessions_that_meet_it_and_no_others() -> None:
    cells = Cells(gap=10, starts=[0, 10, 50, 60], ends=[12, 45, 55, 100], reached=[12, 45, 55, 100])
    assert cells.met_by((40, 50)) == (10, 50), "that of 10 reaches in; that of 0 is over, that of 50 has not begun"
    assert cells.met_by((50, 60)) == (50, 60)
    assert cells.met_by((20, 70)) == (10, 100)
    assert cells.met_by((200, 210)) == (200, 210)
    assert cells.last_end(50, 70) == 100 and cells.last_end(200, 210) == 210


@pytest.fixture
def cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An archive of four events in two minutes, and a quarantine of one."""
    use_home(monkeypatch, tmp_path)
    times = [T0, T0 + 1, T0 + MINUTE, T0 + 2 * MINUTE]
    write(archive.path(ORDERS), "at", times)
    write(archive.quarantine_path(ORDERS), "_broker_time", [T0 + 5])
    known = runs.Ingested(
        topic=ORDERS.name, seq=0, ranges={0: (0, 5)}, archived=4, quarantined={"empty": 1}, gaps=0, delta_version=0,
        committed_at=T0,
    )  # fmt: skip
    monkeypatch.setattr(runs, "ingest_history", lambda _: [known])
    pipeline = SimpleNamespace(name="sums", reads=(ORDERS,))
    return SimpleNamespace(pipeline=pipeline, stated=SimpleNamespace(versions={ORDERS.name: 0}))


def write(path: str, column: str, times: list[int]) -> None:
    moments = pa.array([from_millis(time) for time in times], pa.timestamp("us", "UTC"))
    days = pa.array([from_millis(time).date() for time in times])
    table = pa.table({column: moments, "_ingest": pa.array([0] * len(times), pa.int64()), "_date": days})
    write_deltalake(path, table, partition_by=["_date"])


RANGES = [(T0, T0 + 2 * MINUTE)]


def test_each_record_is_accounted_for(cut: Any) -> None:
    account = of_rows([row(0, "aggregated", 2), row(1, "late", 1)])
    found = conservation(cut, [(RANGES, account)])
    assert found.balanced and found.records == 4
    assert [found.places[name] for name in ("aggregated", "late", "quarantined")] == [2, 1, 1]


@pytest.mark.parametrize(
    "account",
    [
        of_rows([row(0, "aggregated", 2)]),
        of_rows([row(0, "aggregated", 3), row(1, "late", 1)]),
        of_rows([]),
    ],
    ids=["one is lost on the way", "one is there twice", "none came"],
)
def test_a_record_that_the_replay_lost_or_doubled_is_seen_in_the_files(cut: Any, account: Account) -> None:
    assert not conservation(cut, [(RANGES, account)]).balanced
