"""Comparisons as `compare` leaves them: a row in the control store, and audit rows in a real Delta table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from tally.base.duration import from_millis, iso
from tally.base.settings import settings
from tally.control import runs
from tally.lake import delta

STEP = 60_000
T0 = 1_790_000_040_000 // STEP * STEP
AUDIT = pa.schema(
    [
        ("reconciliation", pa.int64()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("key", "batch", "stream", "replayed", "cause")),
        ("explained", pa.bool_()),
    ]
)
Slot = dict[str, Any]
Difference = dict[str, Any]


def use_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("TALLY_HOME", str(home))
    for name in ("TALLY_LAKE", "TALLY_CONTROL"):
        monkeypatch.delenv(name, raising=False)


def slot(at: int, *, rows: int = 2, stream: int = 2, digest: str = "a", closed: bool = True, bad: int = 0) -> Slot:
    """The slot that many steps after T0."""
    start = T0 + at * STEP
    return {
        "start": start, "end": start + STEP, "rows": rows, "stream_rows": stream, "digest": digest, "closed": closed,
        "unexplained": bad, "explained": 0, "unaccounted": 0,
    }  # fmt: skip


def difference(at: int, key: int, batch: int | None, stream: int | None, cause: str = "late") -> Difference:
    def side(value: int | None) -> str | None:
        return None if value is None else json.dumps({"trips": value})

    return {
        "window_start": from_millis(T0 + at * STEP),
        "window_end": from_millis(T0 + (at + 1) * STEP),
        "key": json.dumps({"vendor_id": key}),
        "batch": side(batch),
        "stream": side(stream),
        "replayed": side(stream if cause != "unexplained" else batch),
        "cause": cause,
        "explained": cause != "unexplained",
    }


@dataclass
class Comparison:
    """Three slots of two rows; in the second the stream lacks one event of one row and the whole of the other."""

    pipeline: str = "vendor_trips"
    version: str = "v000000000001"
    slots: list[Slot] = field(default_factory=lambda: [slot(0), slot(1, stream=1), slot(2, closed=False)])
    audit: list[Difference] = field(default_factory=lambda: [difference(1, 1, 3, 2), difference(1, 2, 1, None)])
    changes: dict[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        stream_only = sum(row["batch"] is None for row in self.audit)
        windows = sum(one["rows"] for one in self.slots) + stream_only
        counted = {
            "pipeline": self.pipeline,
            "version": self.version,
            "from": iso(from_millis(self.slots[0]["start"])),
            "to": iso(from_millis(self.slots[-1]["end"])),
            "ranges": [[self.slots[0]["start"], self.slots[-1]["end"]]],
            "ticket": "",
            "windows": windows,
            "equal": windows - len(self.audit),
            "different": len(self.audit),
            "rounding": 0,
            "events": {"late": 2},
            "unexplained": sum(not row["explained"] for row in self.audit),
            "rows": [],
            "open_windows": 2,
            "conservation": {"records": 9, "aggregated": 7, "late": 2, "balanced": True},
            "ingest": {"rides": {"records": 9, "archived": 9, "quarantined": {}, "gaps": 0, "balanced": True}},
            "cut": {"batch": 3, "generation": 1, "watermark": iso(from_millis(T0)), "speed_version": 3},
            "batch_version": 1,
            "verdict": "compared",
        }
        return {**counted, **self.changes}

    def write(self) -> int:
        first, last = self.slots[0]["start"], self.slots[-1]["end"]
        number = runs.open_reconciliation(self.pipeline, self.version, first, last, "")
        if self.audit:
            rows = [{"reconciliation": number, **row} for row in self.audit]
            table = pa.Table.from_pylist(rows, AUDIT)
            write_deltalake(settings().table("audit", self.pipeline), table, mode="append")
        runs.keep_comparison(number, self.summary(), self.slots)
        return number


def restated(comparison: Comparison, *ranges: tuple[int, int], stale: tuple[tuple[int, int], ...] = ()) -> int:
    """One more restatement of these ranges in the batch table's log; its Delta version."""
    path = settings().table("batch", comparison.pipeline, comparison.version)
    words = delta.words("restate", ranges=[list(one) for one in ranges], stale=[list(one) for one in stale])
    rows = pa.table({"window_start": pa.array([from_millis(T0)], pa.timestamp("us", "UTC"))})
    said = CommitProperties(custom_metadata={"userMetadata": words})
    write_deltalake(path, rows, mode="append", commit_properties=said)
    newest = delta.newest(path, "restate")
    assert newest is not None
    return newest.version
