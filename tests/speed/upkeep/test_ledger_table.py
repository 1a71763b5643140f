"""The ledger of a control store that was lost is made again, at a cost that a long life does not change."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tally.control import kept_ledger, ledger
from tally.control.ledger import MicroBatch
from tally.lake import delta
from tally.speed.upkeep import ledger_table


@dataclass(frozen=True)
class Named:
    name: str = "p"
    version: str = "v1"


def entry(batch: int, generation: int = 1) -> MicroBatch:
    ranges = {"t": {0: (batch, batch + 1)}}
    return MicroBatch(
        pipeline="p", version="v1", generation=generation, batch=batch, ranges=ranges, late_watermark=0,
        watermark=0, rows=1, delta_version=batch, committed_at=batch,
    )  # fmt: skip


OF_EACH = ("generation", "batch", "late_watermark", "watermark", "rows", "delta_version", "committed_at", "ids")


@pytest.fixture(autouse=True, params=["packed", "of an older make", "of both"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of whose hundred micro-batches the log holds the last ten, and the kept ones all but five of these."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    monkeypatch.setattr(kept_ledger, "PART", 40)
    kept = [entry(batch) for batch in (*range(60, 95), *range(60), 10)]  # not in order, and one of them twice
    for some in (kept[:35], kept[35:70], kept[70:]):
        if request.param == "packed" or (request.param == "of both" and some[0].batch != 60):
            ledger_table.put(Named(), ledger_table.rows_of(some), "", "append")
        else:
            rows = [{n: getattr(one, n) for n in OF_EACH} | {"ranges": json.dumps(one.ranges)} for one in some]
            write_deltalake(kept_ledger.path(Named()), pa.Table.from_pylist(rows), mode="append", schema_mode="merge")
    log = [as_commit(entry(batch)) for batch in range(99, 89, -1)]
    monkeypatch.setattr(delta, "commits", lambda _: iter(log))


def as_commit(one: MicroBatch) -> delta.Commit:
    names = ("pipeline", "version", "generation", "batch", "ranges", "late_watermark", "watermark")
    words = {"kind": "micro-batch", **{name: getattr(one, name) for name in names}}
    metrics = {"numOutputRows": one.rows}
    return delta.Commit(version=one.delta_version, timestamp=one.committed_at, words=words, metrics=metrics)


def test_a_lost_ledger_is_made_again_from_the_log_and_from_what_was_kept() -> None:
    assert ledger_table.repair(Named()) == 100
    assert ledger.read("p", "v1") == [entry(batch) for batch in range(100)]
    assert ledger_table.repair(Named()) == 0, "nothing is lacking"


def test_a_repair_that_is_killed_has_kept_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = ledger.record, iter(range(100))

    def dies(batches: object) -> None:
        if next(times) == 1:
            raise KeyboardInterrupt
        real(batches)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "record", dies)
        with pytest.raises(KeyboardInterrupt):
            ledger_table.repair(Named())
    reached, whole = ledger.unbroken("p", "v1")
    assert (reached, whole) == ({1: 39}, True)
    assert ledger_table.repair(Named()) == 60
    assert ledger.read("p", "v1") == [entry(batch) for batch in range(100)]


def test_a_gap_is_found_and_filled() -> None:
    ledger.record(entry(batch) for batch in range(100) if batch not in (0, 40, 41))
    assert ledger.unbroken("p", "v1") == ({1: -1}, False)
    ledger.record([entry(0), replace(entry(0), generation=2)])
    assert ledger.unbroken("p", "v1") == ({1: 39, 2: 0}, False)
    ledger_table.repair(Named())
    assert len(ledger.read("p", "v1", 1)) == 100


def test_a_whole_ledger_reads_nothing_that_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.record(entry(batch) for batch in range(98))
    monkeypatch.setattr(ledger_table, "parts", lambda _: pytest.fail("years of entries are read at each start"))
    assert ledger_table.repair(Named()) == 2


def test_a_table_of_an_older_make_is_packed_once(request: pytest.FixtureRequest) -> None:
    before = kept_ledger.entries(Named())
    assert before == [entry(batch) for batch in range(95)]
    older = "packed" not in request.node.callspec.params["home"]
    assert ledger_table.pack(Named()) == (95 if older else 0) and ledger_table.pack(Named()) == 0
    assert kept_ledger.entries(Named()) == before
    if older:
        rows = kept_ledger.table_of(Named())
        assert rows is not None and rows.num_rows == 3, "as many as parts that are read at a time"
