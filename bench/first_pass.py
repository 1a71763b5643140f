"""What a row of two layers, and an event behind it, cost a comparison that starts no JVM: CPU, as they grow in number.

Tables and archive are written here as both layers lay them, without Kafka and Spark; each row is made of one event.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from bench.scattered import MINUTE, T0

KEYS, BATCHES = 1000, 10  # keys of a window, micro-batches
TIME = pa.timestamp("us", "UTC")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Microseconds of CPU, of all threads, for each row or event, the least of some turns; the most memory so far."""
    with tempfile.TemporaryDirectory(prefix="tally-bench-first-pass-") as folder:
        os.environ["TALLY_HOME"] = folder
        return {"runs": [of_size(int(size), Path(folder) / size, given.turns) for size in given.rows.split(",")]}


def of_size(count: int, folder: Path, turns: int) -> dict[str, Any]:
    from tally.lake.duck import connected
    from tally.reconcile.first_pass import events, rows
    from tally.reconcile.first_pass.tables import Snapshot
    from tally.reconcile.replay import expected_rows
    from tally.sources.later_copies import later_copies

    write(count, folder)
    cut, whole = cut_of(count), [(T0, T0 + (count // KEYS + 1) * MINUTE)]
    (orders,) = cut.pipeline.reads
    sides = [Snapshot(path=str(folder / side), version=0) for side in ("batch", "stream")]
    write_archive(count, orders)
    steps: dict[str, Callable[[Any], Any]] = {
        "rows": lambda duck: rows.by_slot(duck, *sides, cut.pipeline, whole, until=None, whole=False),
        "events": lambda duck: events.account(duck, cut, whole, {}, [["amount"]]),
        "first_offsets": lambda _: expected_rows.first_offsets(cut, [whole]),
        "later_copies": lambda _: later_copies(orders, whole, 0, None),
    }
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(turns):
        for name, step in steps.items():
            with connected() as duck:
                began = time.process_time()
                step(duck)
                found[name].append(time.process_time() - began)
    each = {name: round(min(cpu) / count * 1e6, 2) for name, cpu in found.items()}
    return {"rows": count, **each, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def times(count: int) -> tuple[Any, Any]:
    """The number of each row, and the start of its window in microseconds."""
    at = np.arange(count)
    return at, (T0 + at // KEYS * MINUTE) * 1000


def write(count: int, folder: Path) -> None:
    """The same rows as both layers have them."""
    (at, start), chance = times(count), np.random.default_rng(count)
    table = pa.table(
        {
            "window_start": pa.array(start, TIME), "window_end": pa.array(start + MINUTE * 1000, TIME),
            "shop": pa.array((at % KEYS).astype("int32")), "n": pa.array(np.ones(count, "int64")),
            "total": pa.array(chance.integers(0, 10**7, count) / 100),
        }
    )  # fmt: skip
    for side in ("batch", "stream"):
        more = table.append_column("_batch", pa.array(np.zeros(count, "int64"))) if side == "stream" else table
        days = more["window_start"].cast(pa.date32())
        write_deltalake(str(folder / side), more.append_column("_date", days), partition_by=["_date"])


def write_archive(count: int, orders: Any) -> None:
    """The events of these rows, of two partitions, with ids."""
    from tally.sources import archive

    (at, start), chance = times(count), np.random.default_rng(count)
    table = pa.table(
        {
            "id": pa.array(at), "shop": pa.array((at % KEYS).astype("int32")), "at": pa.array(start, TIME),
            "amount": pa.array(chance.integers(0, 10**7, count) / 100),
            "_partition": pa.array((at % 2).astype("int32")), "_offset": pa.array(at // 2),
            "_ingest": pa.array(np.zeros(count, "int64")), "_broker_time": pa.array(start, TIME),
        }
    )  # fmt: skip
    days = table["at"].cast(pa.date32())
    write_deltalake(archive.path(orders), table.append_column("_date", days), partition_by=["_date"])


def cut_of(count: int) -> Any:
    """A cut after the last of ten micro-batches that took all of it in order, and let none be late."""
    from tally.batch.restatement import Restatement
    from tally.catalog.declare import pipeline, topic, tumbling
    from tally.control.ledger import MicroBatch
    from tally.reconcile.cut import Cut

    name, schema = f"orders{count}", "id BIGINT, shop INT, at TIMESTAMP, amount DOUBLE"
    orders = topic(name, schema=schema, event_time="at", lateness="2 minutes", unique="id")

    def sums(orders: Any) -> Any:
        return orders

    edges = [number * count // 2 // BATCHES for number in range(BATCHES + 1)]
    marks = [T0 + number * count // KEYS * MINUTE // BATCHES for number in range(BATCHES + 1)]
    batches = [
        MicroBatch(
            pipeline="sums", version="v1", generation=1, batch=at, rows=1, delta_version=at, committed_at=0,
            ranges={name: {partition: (edges[at], edges[at + 1]) for partition in (0, 1)}},
            late_watermark=marks[max(at - 1, 0)] - 10 * MINUTE, watermark=marks[at + 1] - 10 * MINUTE,
        )
        for at in range(BATCHES)
    ]  # fmt: skip
    stated = Restatement(
        covered=[], stale=[], through={}, seen={}, versions={name: 0}, redecoded={}, ends={}, ranges=[],
        delta_version=0,
    )  # fmt: skip
    made = replace(pipeline(reads=orders, window=tumbling("1 minute"), key="shop")(sums), name="sums", version="v1")
    return Cut(
        pipeline=made, batches=batches, stated=stated, speed_version=0, travels=True, batch_version=0, filters=False,
        late_rule="event",
    )  # fmt: skip
