"""Pipelines of each kind, to ask their kinds: nothing of them runs but a groupBy over frames that a test makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from tally.catalog.declare import pipeline, topic
from tally.catalog.spec import Pipeline, Topic, Window
from tally.control.ledger import MicroBatch
from tally.kinds.kind import History, LateRule

MINUTE = 60_000
# 2026-11-07T00:07:00Z: no window of these tests begins at midnight because they do.
T0 = 1_794_010_020_000
RIDES = topic("rides", schema="id BIGINT, zone INT, at TIMESTAMP", event_time="at", lateness="1 minute")
UNIQUE = topic("unique", schema="id BIGINT, zone INT, at TIMESTAMP", event_time="at", lateness="1 minute", unique="id")
PAID = topic("paid", schema="ride BIGINT, paid_at TIMESTAMP", event_time="paid_at", lateness="1 minute")
TIPPED = topic("tipped", schema="trip BIGINT, tipped_at TIMESTAMP", event_time="tipped_at", lateness="1 minute")


def one(window: Window, of: Topic = RIDES) -> Pipeline:
    """A pipeline of one topic, which counts by zone."""

    @pipeline(reads=of, window=window, key="zone")
    def counted(rides: Any) -> Any:
        return rides.groupBy("window", "zone").agg(F.count("*").alias("n"))

    return counted


def joined(window: Window, topics: Sequence[Topic] = (RIDES, PAID), reach: str = "4 minutes") -> Pipeline:
    """A pipeline of two topics or three, which counts pairs by zone."""

    def pairs(rides: Any, paid: Any, *_: Any) -> Any:
        near = "id = ride AND paid_at >= at - INTERVAL 4 MINUTES AND paid_at <= at + INTERVAL 4 MINUTES"
        return rides.join(paid, F.expr(near)).groupBy("window", "zone").agg(F.count("*").alias("n"))

    def of_two(rides: Any, paid: Any) -> Any:
        return pairs(rides, paid)

    def of_three(rides: Any, paid: Any, tipped: Any) -> Any:
        return pairs(rides, paid, tipped)

    declare = pipeline(reads=list(topics), window=window, key="zone", reach=reach)
    return declare(of_two if len(topics) == 2 else of_three)


def history(marks: Sequence[int], late_rule: LateRule = "window") -> History:
    """Micro-batches after each of which the watermark (minutes past T0) is the next of these."""
    watermarks = [T0 + mark * MINUTE for mark in marks]
    batches = [
        MicroBatch(
            pipeline="p", version="v", generation=1, batch=at, ranges={}, rows=0, delta_version=at, committed_at=0,
            late_watermark=watermarks[at - 1] if at else 0, watermark=mark,
        )
        for at, mark in enumerate(watermarks)
    ]  # fmt: skip
    return History(batches=batches, late_rule=late_rule)
