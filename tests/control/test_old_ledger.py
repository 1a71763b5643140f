"""Of micro-batches of long ago the control store has one row, and whoever asks for one gets it all the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from deltalake import write_deltalake

from tally.base.errors import AnswerIsNo
from tally.batch import maintain
from tally.control import kept_ledger, ledger, shares, tables
from tally.control.ledger import MicroBatch
from tally.control.shares import Share
from tally.control.store import now_ms, store
from tally.speed.upkeep import ledger_table

OF_EACH = ("generation", "batch", "late_watermark", "watermark", "rows", "delta_version", "committed_at", "ids")
STREAM = kept_ledger.Named("topic sales", "shared")
DAY = 86_400_000
ALL = 100  # micro-batches, one an hour
NOW = 1_767_600_000_000


def entry(batch: int) -> MicroBatch:
    ranges = {"sales": {0: (batch, batch + 1)} | ({1: (batch - 50, batch - 49)} if batch >= 50 else {})}
    return MicroBatch(
        pipeline=STREAM.name, version=STREAM.version, generation=1, batch=batch, ranges=ranges, late_watermark=batch,
        watermark=batch + 1, rows=2, delta_version=-1, committed_at=NOW - (ALL - batch) * 3_600_000,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.setenv("TALLY_KEEP_LEDGER", "1 day")
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    monkeypatch.setattr(maintain, "now_ms", lambda: NOW)
    ledger.record(map(entry, range(ALL)))


def keep(batches: range) -> None:
    """The lake's copy, as a stream's driver makes it: the first ones as it did once, a row for each."""
    early = [one for one in batches if one < 20]
    rows = [asdict(entry(batch)) for batch in early]
    kept = [{**{name: row[name] for name in OF_EACH}, "ranges": json.dumps(row["ranges"])} for row in rows]
    if kept:
        write_deltalake(kept_ledger.path(STREAM), pa.Table.from_pylist(kept), mode="append")
    for first, last in ((20, 47), (45, 61), (61, ALL)):  # two of them twice
        some = [entry(batch) for batch in batches if first <= batch < last]
        ledger_table.put(STREAM, ledger_table.rows_of(some), "", "append")


def numbers() -> list[int]:
    query = sa.select(tables.ledger.c.batch).order_by(tables.ledger.c.batch)
    with store().connect() as connection:
        return list(connection.execute(query).scalars())


def came_before(mark: int, batch: MicroBatch) -> bool:
    return batch.watermark <= mark


def fold() -> list[int]:
    return [folded.rows for folded in maintain.fold_ledger()]


def test_old_ones_are_one_row_and_read_as_before() -> None:
    place, whole = (STREAM.name, STREAM.version), [entry(batch) for batch in range(ALL)]
    keep(range(90))
    spans, counts = ledger.spans(*place), ledger.applied(*place)
    assert fold() == [75] and numbers() == list(range(75, ALL)) and fold() == []
    assert ledger.read(*place) == whole and ledger.newest(*place) == whole[-1]
    assert ledger.read(*place, 1, 70, 80) == whole[70:81] and ledger.read(*place, last=0) == whole[:1]
    assert [ledger.at_or_after(*place, 1, at) for at in (0, 74, 75, 76)] == [whole[at] for at in (0, 74, 75, 76)]
    for at in (0, 1, 60, 75, 76, 77, 100):
        expected = whole[at - 1] if at else None
        assert ledger.last_where(whole[-1], partial(came_before, at)) == expected
    assert ledger.applied(*place) == counts == (ALL, 2 * ALL) and ledger.unbroken(*place) == ({1: ALL - 1}, True)
    ((first, last),) = ledger.spans(*place)
    assert last == spans[0][1] and {p: start for p, (start, _) in first.ranges["sales"].items()} == {0: 0, 1: 0}
    assert ledger.after(*place, 1, 95) == whole[96:]


def test_a_pipeline_that_was_away_for_long_has_what_it_took() -> None:
    keep(range(90))
    fold()
    told = {"generation": 1, "topic": "sales", "rows": 9, "delta_version": 7, "committed_at": 8}
    for name, batch in (("long", 40), ("just", 75), ("now", 80)):
        shares.advance(Share(pipeline=name, version="v1", batch=batch, **told))  # type: ignore[arg-type]
        found = ledger.read(name, "v1")
        assert [one.batch for one in found] == list(range(batch + 1)) and found[-1].delta_version == 7
        assert ledger.newest(name, "v1") == found[-1]
        assert ledger.last_where(found[-1], partial(came_before, 30)) == found[29]


def test_one_that_took_part_later_has_none_from_before_that() -> None:
    keep(range(90))
    fold()
    told = {"generation": 1, "topic": "sales", "rows": 9, "delta_version": 7, "committed_at": 8}
    shares.advance(Share(pipeline="late", version="v1", batch=80, since=70, **told))  # type: ignore[arg-type]
    found = ledger.read("late", "v1")
    assert [one.batch for one in found] == list(range(70, 81))
    assert [ledger.at_or_after("late", "v1", 1, at) for at in (0, 72)] == [found[0], found[2]]
    assert ledger.spans("late", "v1") == [(found[0], found[-1])] and ledger.applied("late", "v1")[0] == 11


@pytest.mark.parametrize(("where", "left"), [("before", ALL), ("after", 25)])
def test_killed_beside_a_fold_nothing_is_lost_and_the_next_one_finds_its_place(where: str, left: int) -> None:
    keep(range(90))
    script = f"from tally.batch import maintain as m; m.now_ms = lambda: {NOW}; list(m.fold_ledger())"
    env = {**os.environ, "TALLY_FAILPOINT": f"maintain.{where}_fold_ledger"}
    assert subprocess.run([sys.executable, "-c", script], env=env).returncode == -signal.SIGKILL
    assert len(numbers()) == left
    assert ledger.read(STREAM.name, STREAM.version) == [entry(batch) for batch in range(ALL)]
    fold()
    assert len(numbers()) == 25


def test_what_the_lake_has_not_stays() -> None:
    assert fold() == [] and len(numbers()) == ALL
    keep(range(30, 90))
    assert fold() == [] and len(numbers()) == ALL, "one that is missing there is nowhere else"


def test_what_the_lake_has_lost_is_said() -> None:
    keep(range(90))
    fold()
    Path(kept_ledger.path(STREAM)).rename(kept_ledger.path(STREAM) + ".gone")
    place = STREAM.name, STREAM.version
    assert ledger.newest(*place) == entry(99) and ledger.read(*place, 1, 76) == [entry(at) for at in range(76, ALL)]
    with pytest.raises(AnswerIsNo, match="micro-batches 10 to 75 of topic sales are not all in"):
        ledger.read(*place, 1, 10)


def test_days_later_more_are_folded_into_the_same_row(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(range(99))
    assert fold() == [75]
    monkeypatch.setattr(maintain, "now_ms", lambda: NOW + 20 * 3_600_000)
    assert fold() == [20] and numbers() == list(range(95, ALL))
    monkeypatch.setattr(maintain, "now_ms", lambda: now_ms() + DAY)
    assert fold() == [3] and numbers() == [98, 99], "the newest stays"
    assert ledger.read(STREAM.name, STREAM.version) == [entry(batch) for batch in range(ALL)]
