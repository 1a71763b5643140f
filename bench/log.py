"""What a long Delta log costs each append of a stream, and what the keeper's short one does."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

APPENDS = 40


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The same append with an empty log, with one of many old entries, and after the keeper has shortened it."""
    from tally.lake import tables
    from tally.lake.session import session
    from tally.speed.upkeep import short_log

    folder = Path(tempfile.mkdtemp(prefix="tally-bench-"))
    spark = session("bench-log")
    rows = spark.createDataFrame([(1, date(2026, 1, 1))], "n BIGINT, _date DATE").localCheckpoint()

    def table(name: str) -> str:
        where = str(folder / name)
        tables.make_table(spark, where, rows.schema, short_log.PROPERTIES)
        return where

    def append(where: str) -> float:
        took = []
        for _ in range(APPENDS):
            began = time.monotonic()
            rows.write.format("delta").mode("append").save(where)
            took.append(time.monotonic() - began)
        return round(statistics.median(took[10:]), 3)

    try:
        append(table("warm"))
        short = append(table("short"))
        where = table("long")
        grow(where, given.entries)
        long = append(where)
        began = time.monotonic()
        short_log.shorten(where)
        shortened = round(time.monotonic() - began, 1)
        return {"entries": given.entries, "append_short": short, "append_long": long, "shorten_seconds": shortened,
                "append_shortened": append(where)}  # fmt: skip
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def grow(where: str, entries: int) -> None:
    """Give a table of one version the log of so many, all but the newest two hours old."""
    from deltalake import DeltaTable

    DeltaTable(where).create_checkpoint()
    log = Path(where, "_delta_log")
    first, checkpoint = log / f"{0:020d}.json", log / f"{0:020d}.checkpoint.parquet"
    text, long_ago = first.read_bytes(), time.time() - 7200
    for version in range(1, entries):
        file = log / f"{version:020d}.json"
        file.write_bytes(b"{}\n")
        os.utime(file, (long_ago, long_ago))
    (log / f"{entries:020d}.json").write_bytes(text)
    checkpoint.rename(log / f"{entries:020d}.checkpoint.parquet")
    os.utime(first, (long_ago, long_ago))
    pointer = log / "_last_checkpoint"
    pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "version": entries}))
