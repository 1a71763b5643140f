"""What a micro-batch costs a topic's shared stream after ever more of them, and what is left of them on the disk.

The driver's own write path: journal, inbox, ledger, each pipeline's table, the streams' rows, the keeper beside it, and
what `maintain` does to the control store. What Spark makes of the events is made up; its folds are its own. Each
micro-batch stands for a second: what is kept for an hour is kept for 3,600 of them, at the pace of this machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from bench.home import cpu_by_process
from bench.scattered import PIPELINE, TOPICS, said

PIPELINES = ("one", "two")
PARTITIONS, EVENTS = 4, 100  # of a micro-batch
KEYS = 20
T0 = int(time.time()) // 3600 * 3_600_000  # of a day that is not over: nothing is old enough to be trimmed
HOUR = 3_600  # micro-batches
STRETCH = 100
LATENESS = 120_000
TOPIC = "orders"
WINDOW = pa.struct([("start", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))])
TOTALS = pa.schema([("g0", WINDOW), ("g1", pa.int32()), ("b0", pa.int64()), ("b1", pa.float64())])


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Of each hundred that is looked at, milliseconds a micro-batch, and what lies on the disk after it."""
    with tempfile.TemporaryDirectory(prefix="tally-haul-") as folder, home(Path(folder)):
        return Haul(Path(folder), given.hauled, given.haul_ms, given.haul_fold).run()


@contextmanager
def home(folder: Path) -> Iterator[None]:
    """A home and a catalogue of two pipelines; nothing reads Kafka."""
    before = dict(os.environ)
    (folder / "catalogue" / "pipelines").mkdir(parents=True)
    (folder / "home" / "run").mkdir(parents=True)
    (folder / "catalogue" / "topics.py").write_text(TOPICS)
    for name in PIPELINES:
        text = PIPELINE.format(window='tumbling("1 minute")').replace("def sums(", f"def {name}(")
        (folder / "catalogue" / "pipelines" / f"{name}.py").write_text(text)
    os.environ |= {
        "TALLY_HOME": str(folder / "home"),
        "TALLY_CATALOG": str(folder / "catalogue"),
        "TALLY_SPARK_MEMORY": "1g",
    }
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass
class Part:
    """One pipeline's part in the stream."""

    pipeline: Any
    target: Any
    table: Any
    open: Any

    @property
    def place(self) -> tuple[str, str]:
        return self.pipeline.name, self.pipeline.version


@dataclass
class Costs:
    """Of each micro-batch: wall milliseconds, and CPU milliseconds of the driver's Python, the keeper's with it."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def of_last(self, count: int) -> dict[str, float]:
        wall, cpu = self.wall[-count:], self.cpu[-count:]
        return {
            "median_ms": round(statistics.median(wall), 1),
            "mean_ms": round(statistics.fmean(wall), 1),
            "cpu_ms": round(statistics.fmean(cpu), 1),
        }


class Haul:
    """So many micro-batches of one topic's stream."""

    def __init__(self, folder: Path, count: int, pace_ms: float, worth_a_fold: int) -> None:
        self.folder, self.count, self.pace_ms = folder, count, pace_ms
        self.worth_a_fold = worth_a_fold
        self.costs, self.looks = Costs(), list[dict[str, Any]]()
        self.ends = dict.fromkeys(range(PARTITIONS), 0)

    def run(self) -> dict[str, Any]:
        from tally.lake.session import jvm_pid, session
        from tally.speed.upkeep.keeper import Keeper

        self.shorten_time()
        spark = session("bench-haul")
        jvm = psutil.Process(jvm_pid(spark))
        self.keeper = Keeper(spark)
        self.begin(spark)
        try:
            for batch in range(self.count):
                self.timed(batch)
                if batch + 1 in looks(self.count):
                    self.look(batch + 1, jvm)
        finally:
            self.keeper.close()
            spark.stop()
        first, last = self.looks[1 if len(self.looks) > 2 else 0], self.looks[-1]
        times = {name: round(last[name] / first[name], 2) for name in ("median_ms", "mean_ms", "cpu_ms")}
        return {"micro_batches": self.count, "pipelines": len(PIPELINES), "times": times, "looks": self.looks}

    def shorten_time(self) -> None:
        """Have an hour last as long as its 3,600 micro-batches do here."""
        from tally.speed.shared import inbox
        from tally.speed.upkeep import fold, keeper, short_log

        fold.FILES_WORTH_A_FOLD = self.worth_a_fold
        seconds = max(1, round(HOUR * self.pace_ms / 1000))
        short_log.KEPT_MS = seconds * 1000
        short_log.PROPERTIES |= {
            "delta.logRetentionDuration": f"interval {seconds} seconds",
            "delta.deletedFileRetentionDuration": f"interval {seconds} seconds",
        }
        inbox.KEPT_SECONDS = max(1, round(inbox.KEPT_SECONDS * self.pace_ms / 1000))
        inbox.PROPERTIES |= {
            name: f"interval {inbox.KEPT_SECONDS} seconds" for name in inbox.PROPERTIES if "Duration" in name
        }
        keeper.COPY_AFTER_MS = short_log.KEPT_MS // 2
        os.environ["TALLY_KEEP_LEDGER"] = f"{2 * seconds} seconds"

    def begin(self, spark: Any) -> None:
        """The stream as a driver begins it, and each pipeline's part."""
        from deltalake import DeltaTable

        from tally.catalog.load import catalogue
        from tally.control import leases
        from tally.kinds import kind_of
        from tally.kinds.frames import called
        from tally.speed import checkpoint, commit, query
        from tally.speed.shared.clock import Clock
        from tally.speed.shared.ids import Ids
        from tally.speed.shared.inbox import Inbox
        from tally.speed.shared.journal import Journal
        from tally.speed.shared.open_windows import OpenWindows

        self.inbox = Inbox(TOPIC, 1, leases.take(leases.name_of_inbox(TOPIC)))
        self.root = checkpoint.topic_root(TOPIC)
        self.journal, self.ids, self.clock = Journal(self.root, lambda _: 0), Ids(LATENESS), Clock()
        self.parts = []
        for name in PIPELINES:
            pipeline = catalogue().pipeline(name)
            kind, lease = kind_of(pipeline), leases.take(leases.name_of(pipeline))
            query.prepare_table(spark, pipeline, kind.flattened(called(pipeline, kind.empty(spark))).schema, lease)
            target = commit.Target(spark=spark, pipeline=pipeline, generation=1, lease=lease)
            table = DeltaTable(commit.path(pipeline))
            self.parts.append(Part(pipeline, target, table, OpenWindows(("g0", "g1"), "g0")))

    def timed(self, batch: int) -> None:
        began, cpu = time.monotonic(), time.process_time()
        self.micro_batch(batch)
        self.costs.wall.append(1000 * (time.monotonic() - began))
        self.costs.cpu.append(1000 * (time.process_time() - cpu))
        if batch and batch % HOUR == 0:
            from tally.batch import maintain

            list(maintain.fold_ledger())

    def micro_batch(self, batch: int) -> None:
        """As a topic's stream does it: taken in one commit, then each pipeline's rows."""
        from tally.base.settings import settings
        from tally.control import ledger
        from tally.control.ledger import NEAR
        from tally.control.shares import stream_of
        from tally.control.store import now_ms
        from tally.speed.shared.inbox import FOLD_EVERY, Taken
        from tally.speed.shared.plan import planned

        now = T0 + batch * 1000
        brought = pa.table({"_id": pa.array(range(batch * EVENTS, (batch + 1) * EVENTS), pa.int64()),
                            "_time": pa.array([now * 1000] * EVENTS, pa.int64())})  # fmt: skip
        taken = self.as_taken(Taken, batch, now)
        brought = self.ids.lasting(brought, taken.clock.watermark)
        totals = {("", "ids"): brought}
        for part in self.parts:
            with self.journal.running(part.place, batch):
                totals[part.place] = with_held(part.open, made_up(batch, now))
        self.inbox.take(taken, totals)
        self.ids.put(brought)
        self.ids.forget(taken.clock.watermark)
        name, version = stream_of(TOPIC)
        entry = ledger.MicroBatch(
            pipeline=name, version=version, generation=1, batch=batch, ranges=taken.ranges, rows=0, delta_version=-1,
            late_watermark=taken.late_watermark, watermark=taken.clock.watermark, committed_at=now_ms(), ids=NEAR,
        )  # fmt: skip
        ledger.record([entry])
        for part in self.parts:
            with self.journal.running(part.place, batch):
                self.write(part, totals[part.place], planned(taken), taken.clock.watermark)
        if batch and batch % min(FOLD_EVERY, settings().fold_after_batches) == 0:
            wholes = {part.place: part.open.totals for part in self.parts}
            self.inbox.fold(taken, {**wholes, ("", "ids"): self.ids.held()})

    def as_taken(self, taken: Any, batch: int, now: int) -> Any:
        """The ranges of a micro-batch, and the clock after it."""
        from tally.speed.shared.clock import Seen

        ranges = {p: (end, end + EVENTS // PARTITIONS) for p, end in self.ends.items()}
        self.ends, late = {p: to for p, (_, to) in ranges.items()}, self.clock.watermark
        seen = {p: Seen(event=now, record=now + 50) for p in ranges}
        self.clock = self.clock.after(seen, dict.fromkeys(ranges, 0), LATENESS, 60_000)
        return taken(generation=1, batch=batch, ranges={TOPIC: ranges}, late_watermark=late, clock=self.clock)

    def write(self, part: Part, totals: pa.Table, plan: Any, watermark: int) -> None:
        """A pipeline's rows, and what its runner does after their commit."""
        from tally.control import incidents, streams
        from tally.speed import commit
        from tally.speed.tries import FAULTS

        done = commit.append_arrow(rows_of(totals), plan, part.target, part.table)
        shown = {"batch": done.batch, "watermark": done.watermark, "took": 0.1, "freshness": 1.0}
        streams.show(part.pipeline.name, state="running", version=part.pipeline.version, app="haul", **shown)
        incidents.close(part.pipeline.name, *FAULTS, done="it runs again")
        part.open.put(totals)
        part.open.close(watermark)
        self.journal.outlived(part.place, plan.batch)
        self.keeper.after(part.pipeline, plan.batch, part.target.lease)

    def look(self, after: int, jvm: psutil.Process) -> None:
        """What the last hundred cost, and what all of them left."""
        found = {
            "after": after,
            **self.costs.of_last(STRETCH),
            "memory_mb": round(psutil.Process().memory_info().rss / 2**20),
        }
        found |= {"jvm_cpu_seconds": round(sum(cpu_by_process(jvm).values()), 1)}
        home = self.folder / "home"
        for name in ("inbox", "speed", "ledger"):
            found[name] = size(home / "lake" / name)
        found["checkpoint"] = size(Path(self.root))
        found["control_mb"] = round(sum(file.stat().st_size for file in home.glob("*.db*")) / 1e6, 2)
        self.looks.append(said(found))


def looks(count: int) -> set[int]:
    """After how many micro-batches one looks: the first and second hundred, each thousand or tenth, and the last."""
    return {STRETCH, 2 * STRETCH, *range(max(1000, count // 10), count, max(1000, count // 10)), count}


def made_up(batch: int, now: int) -> pa.Table:
    """What a second's events come to: a row a key, of one window."""
    start = datetime.fromtimestamp((now - now % 60_000) / 1000, UTC)
    end = datetime.fromtimestamp((now - now % 60_000) / 1000 + 60, UTC)
    window = pa.array([{"start": start, "end": end}] * KEYS, WINDOW)
    counts = [EVENTS // KEYS] * KEYS
    return pa.table([window, pa.array(range(KEYS), pa.int32()), pa.array(counts, pa.int64()),
                     pa.array([float(batch % 97 + key) for key in range(KEYS)])], schema=TOTALS)  # fmt: skip


def with_held(held: Any, new: pa.Table) -> pa.Table:
    """What these groups held before, and this."""
    import pyarrow.compute as pc

    before = held.of(new)
    for name in ("b0", "b1"):
        at = new.schema.get_field_index(name)
        new = new.set_column(at, new.schema.field(at), pc.add(pc.fill_null(before[name], 0), new[name]))
    return new


def rows_of(totals: pa.Table) -> pa.Table:
    """The rows of a pipeline's table."""
    import pyarrow.compute as pc

    bounds = {f"window_{edge}": pc.struct_field(totals["g0"], edge) for edge in ("start", "end")}
    return pa.table({**bounds, "shop": totals["g1"], "n": totals["b0"], "total": totals["b1"]})


def size(folder: Path) -> dict[str, float]:
    """Megabytes and files of a folder."""
    files = [Path(where, name) for where, _, names in os.walk(folder) for name in names]
    found = []
    for file in files:
        try:
            found.append(file.stat().st_size)
        except FileNotFoundError:  # the keeper works meanwhile
            continue
    return {"mb": round(sum(found) / 1e6, 2), "files": len(found)}
