"""Totals by group, in memory: the newest of a group stands, and closed windows go."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tally.speed.shared import open_windows
from tally.speed.shared.open_windows import OpenWindows

T0 = datetime(2026, 1, 5, tzinfo=UTC)
STAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("g0", pa.struct([("start", STAMP), ("end", STAMP)])), ("g1", pa.float64()), ("b0", pa.int64())])


def rows(*given: tuple[int, float | None, int]) -> pa.Table:
    """Groups by the minute that their window begins with, their key, and their total."""
    found: list[dict[str, Any]] = []
    for minute, key, total in given:
        start = T0 + timedelta(minutes=minute)
        found.append({"g0": {"start": start, "end": start + timedelta(minutes=1)}, "g1": key, "b0": total})
    return pa.Table.from_pylist(found, schema=SCHEMA)


def told(table: pa.Table | None) -> list[tuple[int, str, int]]:
    assert table is not None
    return sorted(((r["g0"]["start"] - T0) // timedelta(minutes=1), str(r["g1"]), r["b0"]) for r in table.to_pylist())


def windows(*given: tuple[int, float | None, int]) -> OpenWindows:
    held = OpenWindows(("g0", "g1"), "g0")
    held.put(rows(*given))
    return held


def test_the_newest_total_of_a_group_stands() -> None:
    held = windows((0, 1.0, 5), (0, 2.0, 6), (1, 1.0, 7))
    held.put(rows((0, 2.0, 60), (2, 1.0, 8)))
    assert told(held.totals) == [(0, "1.0", 5), (0, "2.0", 60), (1, "1.0", 7), (2, "1.0", 8)]


def test_what_is_there_of_some_groups_null_and_nan_among_them() -> None:
    held = windows((0, None, 1), (0, float("nan"), 2), (0, 3.0, 3), (1, None, 4))
    found = held.of(rows((0, float("nan"), 0), (5, 3.0, 0), (0, None, 0))).to_pylist()
    assert [row["b0"] for row in found] == [2, None, 1]
    assert found[1] == {"g0": None, "g1": None, "b0": None}


def test_groups_and_totals_of_years_that_python_has_no_time_for() -> None:
    days, times = pa.array([10**7, -(10**6)], pa.int32()).cast(pa.date32()), pa.array([3 * 10**17, -(10**17)])
    nested = pa.StructArray.from_arrays([days, pa.array([[at] for at in times.cast(STAMP)])], ["day", "times"])
    far = {"g1": nested, "g2": days, "g3": times.cast(pa.timestamp("us")), "b0": times.cast(STAMP), "b1": nested}
    window = rows((0, 1.0, 5), (0, 1.0, 5))["g0"]
    held, some = OpenWindows(("g0", "g1", "g2", "g3"), "g0"), pa.table({"g0": window, **far})
    held.put(some)
    held.put(some.slice(1))
    assert held.totals is not None and held.totals.num_rows == 2 and held.of(some).equals(some)


def test_texts_that_are_no_utf_8_are_told_apart() -> None:
    """A function makes such of bytes."""
    texts = pa.array([b"\xff", b"\xfe"]).view(pa.string())
    held = OpenWindows(("g0", "g1"), "g0")
    some = pa.table({"g0": rows((0, 1, 5), (0, 1, 5))["g0"], "g1": texts, "b0": texts})
    held.put(some)
    assert held.of(some.slice(1)).equals(some.slice(1)) and held.of(some).equals(some)


def test_a_window_that_ends_at_the_watermark_is_over() -> None:
    held = windows((0, 1.0, 5), (1, 1.0, 7))
    held.close(int(T0.timestamp() * 1000) + 60_000)
    assert told(held.totals) == [(1, "1.0", 7)]
    assert held.of(rows((0, 1.0, 0), (1, 1.0, 0)))["b0"].to_pylist() == [None, 7]


def test_groups_of_which_none_is_there() -> None:
    held = windows((0, 1.0, 5))
    assert held.of(rows((3, 1.0, 0)))["b0"].to_pylist() == [None]
    held.put(rows((3, 1.0, 9)))
    assert told(held.totals) == [(0, "1.0", 5), (3, "1.0", 9)]


def test_any_order_of_changes_and_closings_is_what_a_dictionary_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_windows, "FEWEST", 3)
    chance = random.Random(5)
    for _ in range(40):
        held, known, closed = OpenWindows(("g0", "g1"), "g0"), dict[tuple[int, str], int](), 0
        for turn in range(25):
            open_now = [(minute, float(key)) for minute in range(closed, closed + 3) for key in range(6)]
            some = [(*group, turn) for group in chance.sample(open_now, chance.randrange(9))]
            asked = [(*group, 0) for group in chance.sample(open_now, 5)]
            assert held.of(rows(*asked))["b0"].to_pylist() == [known.get((at, str(key))) for at, key, _ in asked]
            held.put(rows(*some))
            known.update({(minute, str(key)): total for minute, key, total in some})
            if chance.random() < 0.2:
                closed += 1
                held.close(int(T0.timestamp() * 1000) + closed * 60_000)
                known = {group: total for group, total in known.items() if group[0] >= closed}
            if chance.random() < 0.2:
                assert told(held.totals) == sorted((*group, total) for group, total in known.items())
            assert len(held) == len(known)


def test_what_a_micro_batch_costs_does_not_grow_with_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts nothing together again that did not change, until a part of all has changed."""
    held, settled = windows(*((0, float(key), key) for key in range(20_000))), list[int]()
    real = OpenWindows.settle
    held.settle()
    monkeypatch.setattr(OpenWindows, "settle", lambda self: (settled.append(len(self)), real(self)))
    for turn in range(49):
        held.put(rows(*((0, float(key), turn) for key in range(turn * 100, turn * 100 + 100))))
        held.close(0)
    assert settled == []
    held.put(rows(*((0, float(key), 1) for key in range(200))))
    assert settled == [20_000]


def test_nothing_is_there_of_anything_at_first() -> None:
    held = OpenWindows(("g0", "g1"), "g0")
    assert held.of(rows((0, 1.0, 5)))["b0"].to_pylist() == [None]
    held.close(0)
    assert held.totals is None
