"""Cuts made of a few micro-batches in memory, for what is worked out from a ledger without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from tally.batch.restatement import Restatement
from tally.catalog.declare import hopping, pipeline, session, topic, tumbling
from tally.catalog.spec import Pipeline
from tally.control.ledger import MicroBatch
from tally.reconcile.cut import Cut

MINUTE = 60_000
T0 = 1_790_000_040_000 // MINUTE * MINUTE
ORDERS = topic("orders", schema="shop INT, at TIMESTAMP, amount DOUBLE", event_time="at", lateness="1 minute")


def function(frame: DataFrame) -> DataFrame:
    return frame


def declared(window: Any, key: str = "shop") -> Pipeline:
    made: Pipeline = pipeline(reads=ORDERS, window=window, key=key)(function)
    return replace(made, name="demand", version="v1")


TUMBLING = declared(tumbling("1 minute"))
HOPPING = declared(hopping("3 minutes", by="1 minute"))
SESSION = declared(session("2 minutes"))


def micro_batch(number: int, ranges: dict[int, tuple[int, int]], *, watermark: int = T0, late: int = T0) -> MicroBatch:
    """One that held these offsets of each partition of orders."""
    return MicroBatch(
        pipeline="demand", version="v1", generation=1, batch=number, ranges={ORDERS.name: ranges}, late_watermark=late,
        watermark=watermark, rows=1, delta_version=number, committed_at=0,
    )  # fmt: skip


def restatement(**given: Any) -> Restatement:
    empty: dict[str, Any] = {
        "covered": [], "stale": [], "through": {}, "seen": {}, "versions": {ORDERS.name: 0}, "redecoded": {},
        "ends": {}, "ranges": [], "delta_version": 0,
    }  # fmt: skip
    return Restatement(**{**empty, **given})


def cut(*batches: MicroBatch, of: Pipeline = TUMBLING, **given: Any) -> Cut:
    """A cut after the last of these micro-batches."""
    known: Sequence[MicroBatch] = batches or [micro_batch(0, {0: (0, 10)})]
    said: dict[str, Any] = {
        "pipeline": of, "batches": known, "stated": restatement(), "speed_version": 0, "travels": True,
        "batch_version": 0, "filters": False, "late_rule": "window",
    }  # fmt: skip
    return Cut(**{**said, **given})
