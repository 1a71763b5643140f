"""What the archive's bytes cost in room and time, what its manifests cost, and how fast all is decoded again."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from bench import truth
from bench.home import cpu_by_process, fresh_home, tally

HOUR = 3_600_000


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The same rides archived without and with their bytes, verified, and decoded again under another contract."""
    with fresh_home(TALLY_MAX_OFFSETS_PER_INGEST=str(given.archived)) as home:
        sent = tally("produce", "rides", "--count", str(given.archived), "--rate", "100", "--no-payments")
        records = sum(sent["sent"]["rides"].values())
        hour = min(start for start, _ in truth.windows(home / "truth" / "rides.csv")[0]) // HOUR * HOUR
        from tally.lake.session import session

        spark = session("bench-archive")
        archived(spark, home, "warm", keep=True)
        plain = archived(spark, home, "plain", keep=False)
        kept = archived(spark, home, "kept", keep=True)
        return {"records": records, "without_bytes": plain, "with_bytes": kept, **looked_at(spark, (hour, hour + HOUR))}


def archived(spark: Any, home: Path, lake: str, *, keep: bool) -> dict[str, Any]:
    """One ingest of all into a lake of its own: seconds, and the archive's size."""
    from tally.catalog.load import catalogue
    from tally.sources import archive
    from tally.sources.ingest import ingest

    os.environ |= {
        "TALLY_LAKE": str(home / lake),
        "TALLY_CONTROL": f"sqlite:///{home / lake}.db",
        "TALLY_ARCHIVE_BYTES": str(keep),
    }
    topic = catalogue().topic("rides")
    cost, done = timed(spark, lambda: ingest(spark, topic))
    files = Path(archive.path(topic)).rglob("*.parquet")
    return {
        "ingest": cost,
        "archive_mb": round(sum(file.stat().st_size for file in files) / 1e6, 1),
        "archived": sum(one.archived for one in done),
    }


def looked_at(spark: Any, hour: tuple[int, int]) -> dict[str, Any]:
    """The last archive verified, by an hour and whole, and decoded again because the skew changed."""
    from tally.catalog.load import catalogue
    from tally.sources import redecode
    from tally.sources.witnesses import verification

    topic = catalogue().topic("rides")
    took: dict[str, Any] = {}
    for name, look in {
        "verify_hour": lambda: verification.verify(spark, verification.Extent(topic=topic, ranges=[hour])),
        "verify_all": lambda: verification.verify(spark, verification.Extent(topic=topic)),
        "verify_deep": lambda: verification.verify(spark, verification.Extent(topic=topic, deep=True)),
    }.items():
        took[name], found = timed(spark, look)
        assert found == [], found
    os.environ["TALLY_SKEW"] = "6 minutes"
    took["redecode"], _ = timed(spark, lambda: redecode.ensure_current(spark, topic))
    return took


def timed(spark: Any, act: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """What an act gives, and its cost: wall seconds, and CPU seconds of the session's JVM and its Python workers."""
    from tally.lake.session import jvm_pid

    jvm = psutil.Process(jvm_pid(spark))
    began, before = time.monotonic(), sum(cpu_by_process(jvm).values())
    done = act()
    wall, cpu = time.monotonic() - began, sum(cpu_by_process(jvm).values()) - before
    return {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}, done
