"""What a micro-batch costs beside ever more open groups: CPU of adding to them in the driver, and their memory.

Events change a thousand groups at a time, of windows that are all open; then the windows close one after the other.
"""

from __future__ import annotations

import argparse
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pyarrow as pa

from tally.speed.shared.open_windows import OpenWindows

T0 = datetime(2026, 1, 5, tzinfo=UTC)
STAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("g0", pa.struct([("start", STAMP), ("end", STAMP)])),
        ("g1", pa.int32()),
        ("b0", pa.int64()),
        ("b1", pa.float64()),
    ]
)
WINDOWS = 10
CHANGED = 1_000


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """For each number of groups: milliseconds of CPU a micro-batch (mean, worst) and bytes a group."""
    return {"changed": CHANGED, "windows": WINDOWS, **{str(n): of(int(n)) for n in given.open_groups.split(",")}}


def of(groups: int) -> dict[str, float]:
    chance, me = random.Random(7), psutil.Process()
    before = me.memory_info().rss
    held = OpenWindows(("g0", "g1"), "g0")
    for start in range(0, groups, 50_000):
        held.put(totals(range(start, min(start + 50_000, groups))))
    bytes_a_group = (me.memory_info().rss - before) / groups
    costs = []
    for _ in range(60):
        parts = totals(sorted(chance.sample(range(groups), CHANGED)))
        began = time.process_time()
        held.of(parts)
        held.put(parts)
        held.close(0)
        costs.append(time.process_time() - began)
    closing = time.process_time()
    for window in range(WINDOWS):
        held.close(int((T0 + timedelta(minutes=window + 1)).timestamp() * 1000))
    closing = time.process_time() - closing
    assert held.totals is not None and held.totals.num_rows == 0
    return {
        "cpu_ms": round(1000 * sum(costs) / len(costs), 1),
        "worst_ms": round(1000 * max(costs), 1),
        "closing_ms": round(1000 * closing, 1),
        "bytes_a_group": round(bytes_a_group),
    }


def totals(numbers: Any) -> pa.Table:
    """Totals of these groups, each of one of the windows."""
    starts = [T0 + timedelta(minutes=number % WINDOWS) for number in numbers]
    windows = [{"start": start, "end": start + timedelta(minutes=1)} for start in starts]
    keys = pa.array([number // WINDOWS for number in numbers], pa.int32())
    counts, sums = pa.array(list(numbers), pa.int64()), pa.array([float(number) for number in numbers])
    return pa.table([pa.array(windows, SCHEMA.field("g0").type), keys, counts, sums], schema=SCHEMA)
