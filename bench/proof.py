"""Two million rides through both layers: how fast, and whether batch - stream is explained to the last event."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from bench import truth
from bench.home import fresh_home, tally, timed

PIPELINE = "vendor_trips"
LATENESS_MS = 600_000


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Produce, drain, ingest and restate, reconcile; every count is held against the producer's own record."""
    with fresh_home(TALLY_MAX_OFFSETS_PER_TRIGGER=str(given.micro_batch)) as home:
        sent = tally("produce", "rides", "--count", str(given.rides), "--rate", "100", "--no-payments")
        stream, stream_cost = timed("stream", PIPELINE, "--until-caught-up")
        span = span_of(home)
        _, batch_cost = timed("batch", PIPELINE, "--from", span[0], "--to", span[1])
        found, reconcile_cost = timed("reconcile", PIPELINE, "--from", span[0], "--to", span[1])
        records = sum(sent["sent"]["rides"].values())
        drain = drain_seconds(home)
        return {
            "records": records,
            "produced_per_second": sent["rate"],
            "stream": {**stream_cost, "drain_seconds": drain, "events_per_second": round(records / drain)},
            "micro_batches": stream["pipelines"][0]["batches"],
            "batch": {**batch_cost, "events_per_second": round(records / batch_cost["wall_seconds"])},
            "reconcile": reconcile_cost,
            "found": {
                k: found[k] for k in ("windows", "equal", "different", "rounding", "events", "unexplained", "verdict")
            },
            "conservation": found["conservation"],
            "against_truth": against_truth(home, found, sent["sent"]["rides"]),
        }


def span_of(home: Path) -> tuple[str, str]:
    """From before the first ride to after the last."""
    from tally.base.duration import from_millis, iso

    found, _ = truth.windows(home / "truth" / "rides.csv")
    starts = [start for start, _ in found]
    return iso(from_millis(min(starts))), iso(from_millis(max(starts) + truth.MINUTE))


def batches() -> list[Any]:
    from tally.catalog.load import catalogue
    from tally.control import ledger

    pipeline = catalogue().pipeline(PIPELINE)
    return ledger.read(pipeline.name, pipeline.version)


def drain_seconds(home: Path) -> float:
    """From the start of the query to the commit of the last micro-batch that held records."""
    began = next(home.glob(f"checkpoints/{PIPELINE}/*/g1/metadata")).stat().st_mtime
    last = max(b.committed_at for b in batches() if any(to > a for r in b.ranges.values() for a, to in r.values()))
    return round(last / 1000 - began, 1)


def against_truth(home: Path, found: dict[str, Any], sent: dict[str, int]) -> dict[str, Any]:
    """Each claim of the product beside what the truth file says."""
    began = time.monotonic()
    path = home / "truth" / "rides.csv"
    expected, classes = truth.windows(path)
    rows = tally("read", PIPELINE, "--layer", "batch")
    got = {key(row): (row["trips"], row["takings"]) for row in rows}
    wrong = [k for k in expected.keys() | got.keys() if not same(expected.get(k), got.get(k))]
    ranges, shared = [{"ranges": b.ranges} for b in batches()], batches()[-1].ids == "near"
    late = truth.late(path, ranges, "rides", LATENESS_MS, shared=shared)
    ingest = found["ingest"]["rides"]
    bad = sum(n for kind, n in classes.items() if kind.startswith("bad"))
    return {
        "windows": len(expected),
        "batch_windows_wrong": len(wrong),
        "late": {"truth": late, "tally": found["events"].get("late", 0)},
        "duplicates": {"truth": classes["duplicate"], "tally": found["conservation"]["duplicate"]},
        "quarantined": {"truth": bad, "tally": sum(ingest["quarantined"].values())},
        "archived": {"truth": sum(classes.values()) - bad, "tally": ingest["archived"]},
        "classes_as_reported": dict(classes) == {k: v for k, v in sent.items() if v},
        "seconds": round(time.monotonic() - began, 1),
    }


def key(row: dict[str, Any]) -> tuple[int, str]:
    from tally.base.duration import parse_instant, to_millis

    return to_millis(parse_instant(row["window_start"])), str(row["vendor_id"])


def same(a: tuple[int, float] | None, b: tuple[int, float] | None) -> bool:
    return a is not None and b is not None and a[0] == b[0] and abs(a[1] - b[1]) <= 1e-9 * max(abs(a[1]), abs(b[1]))
