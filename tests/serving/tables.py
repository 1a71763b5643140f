"""Puts a case on the lake and in the control store, with Spark as the writer, as the product does, or with delta-rs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from serving.cases import DDL, Case, Row

from tally.base.duration import from_millis
from tally.base.settings import settings
from tally.control import beginnings, ledger, seals

ARROW = {
    "window_start": pa.timestamp("us", "UTC"),
    "window_end": pa.timestamp("us", "UTC"),
    "zone": pa.int32(),
    "kind": pa.string(),
    "trips": pa.int64(),
    "fare": pa.float64(),
    "paid": pa.decimal128(12, 2),
    "_batch": pa.int64(),
}

Writer = Callable[[str, list[Row], bool], None]


def use_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("TALLY_HOME", str(home))
    for name in ("TALLY_LAKE", "TALLY_CONTROL"):
        monkeypatch.delenv(name, raising=False)


def lay(case: Case, write: Writer) -> None:
    """Write both tables in a few commits each, the seals and the ledger; a half without rows gets no table."""
    for layer, rows in (("speed", case.speed), ("batch", case.batch)):
        for at in range(0, len(rows), 40):
            path = settings().table(layer, case.pipeline.name, case.pipeline.version)
            write(path, [typed(row) for row in rows[at : at + 40]], layer == "speed")
    seals.write(case.seals)
    mark(case, case.watermark)
    if case.begins is not None:
        beginnings.say(case.pipeline, case.begins, by="a person", why="")


def mark(case: Case, watermark: int) -> None:
    """Ten micro-batches in the ledger, the newest with this watermark."""
    ledger.record(
        ledger.MicroBatch(
            pipeline=case.pipeline.name,
            version=case.pipeline.version,
            generation=1,
            batch=batch,
            ranges={},
            late_watermark=0,
            watermark=watermark - 1_000_000 * (9 - batch),
            rows=1,
            delta_version=batch,
            committed_at=1,
        )
        for batch in range(10)
    )


def by_spark(spark: SparkSession) -> Writer:
    def write(path: str, rows: list[Row], speed: bool) -> None:
        ddl = f"{DDL}, _batch BIGINT" if speed else DDL
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], ddl)
        frame = frame.selectExpr("*", "to_date(window_start) AS _date").coalesce(1)
        frame.write.format("delta").mode("append").partitionBy("_date").save(path)

    return write


def by_delta_rs(path: str, rows: list[Row], speed: bool) -> None:
    names = [name for name in ARROW if speed or name != "_batch"]
    columns = {name: pa.array([row[name] for row in rows], ARROW[name]) for name in names}
    dates = pa.array([day(row["window_start"]) for row in rows], pa.date32())
    write_deltalake(path, pa.table({**columns, "_date": dates}), mode="append", partition_by=["_date"])


def day(moment: object) -> object:
    assert isinstance(moment, datetime)
    return moment.date()


def typed(row: Row) -> Row:
    """The row with instants as datetimes and amounts as decimals, in the order of the schema."""
    return {name: cell(name, value) for name, value in row.items()}


def cell(name: str, value: object) -> object:
    if name in ("window_start", "window_end"):
        return from_millis(value)
    return Decimal(value) / 100 if name == "paid" else value
