"""Single events: in slots of their time, late by their own time, and made of nothing but themselves."""

from __future__ import annotations

from typing import Any, cast

import pytest
from declared import MINUTE, T0, UNIQUE, history, one
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis
from tally.catalog.declare import events, pipeline, tumbling
from tally.catalog.spec import Pipeline
from tally.kinds import kind_of
from tally.kinds.events import Events

NO_SPARK = cast(SparkSession, None)


def dear() -> Pipeline:
    @pipeline(reads=UNIQUE, window=events("1 minute"), key="id")
    def dear(rides: Any) -> Any:
        return rides.where("zone > 1").select("window", "id", "zone")

    return dear


def test_rows_of_events_are_of_this_kind_and_of_no_other() -> None:
    assert type(kind_of(dear())) is Events and kind_of(dear()).row_by_row
    assert not kind_of(one(tumbling("1 minute"), UNIQUE)).row_by_row


def test_an_event_is_late_by_its_own_time_and_known_by_its_key() -> None:
    kind = kind_of(dear())
    assert kind.late_rule(NO_SPARK) == "event" and kind.by_event and not dear().append_only


def test_a_slot_is_made_of_its_own_events_only() -> None:
    kind, slot = kind_of(dear()), T0
    assert kind.made_of(slot, slot + MINUTE) == [(slot, slot + MINUTE)]
    (((start, end),),) = kind.replay_reads(NO_SPARK, {slot: slot + MINUTE}, {})
    assert start == slot and slot + MINUTE <= end
    assert kind.concerned([slot], {slot}) == {slot} and not kind.concerned([slot + MINUTE], {slot})


@pytest.mark.parametrize("rows", ["applied", "replayed"])
def test_each_event_gives_the_row_of_its_slot_or_none(spark: SparkSession, rows: str) -> None:
    made = [(1, 1, T0), (2, 2, T0), (3, 3, T0 + MINUTE - 1), (4, 4, T0 + MINUTE)]
    frame = spark.createDataFrame([(at, zone, from_millis(time)) for at, zone, time in made], UNIQUE.ddl)
    kind = kind_of(dear())
    if rows == "applied":
        out = kind.applied([frame])
    else:
        tagged = frame.withColumn("_late_at", F.lit(T0 + 60 * MINUTE))  # it was accepted: no window's end is asked
        out = kind.flattened(dear().function(*kind.replayed([tagged], history([], "event"))))
    found = {(row["id"], row["zone"], (row["start"] - T0) // MINUTE) for row in
             out.withColumn("start", F.unix_millis("window_start")).collect()}  # fmt: skip
    assert found == {(2, 2, 0), (3, 3, 0), (4, 4, 1)}
