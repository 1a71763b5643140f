"""Windows of the clock: which there are, what lies in them, when they are over, and what a replay makes of them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from declared import MINUTE, RIDES, T0, UNIQUE, history, joined, one
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis, millis
from tally.catalog.declare import hopping, tumbling
from tally.catalog.ranges import event_ranges, windows_of
from tally.catalog.spec import Pipeline, Window
from tally.kinds import kind_of
from tally.kinds.frames import MARK
from tally.kinds.windowed import Windowed

SEVEN = tumbling("7 minutes")
# A new one every 10 minutes, each 25 minutes long: an event lies in two of them, or in three.
UNEVEN = hopping("25 minutes", by="10 minutes")
NO_SPARK = cast(SparkSession, None)


def holding(time: int, window: Window) -> list[int]:
    """The starts of the windows that hold an instant, by trying all of them: the grid begins in 1970."""
    size, step = millis(window.size), millis(window.step)
    last = time // step * step
    return [start for start in range(last - 4 * size // step * step, last + step, step) if start <= time < start + size]


def events(spark: SparkSession, times: list[int]) -> DataFrame:
    """Events of zone 1 at these milliseconds."""
    rows = [(at, 1, from_millis(time)) for at, time in enumerate(times)]
    return spark.createDataFrame(rows, RIDES.ddl)


@pytest.mark.parametrize("window", [SEVEN, UNEVEN])
def test_one_topic_in_windows_of_the_clock_is_of_this_kind(window: Window) -> None:
    assert type(kind_of(one(window))) is Windowed


def test_a_slot_is_a_step_of_the_grid_also_before_1970() -> None:
    sevens, uneven = one(SEVEN), one(UNEVEN)
    assert sevens.slot(T0) == T0 - 3 * MINUTE, "4,271,452 steps of 7 minutes since 1970, and 3 minutes"
    assert uneven.slot(T0 + 5 * MINUTE) == T0 + 3 * MINUTE, "00:10"
    assert (sevens.slot(-1), sevens.slot(-7 * MINUTE), sevens.slot(0)) == (-7 * MINUTE, -7 * MINUTE, 0)


def test_no_accepted_event_changes_a_window_that_the_watermark_has_passed() -> None:
    for pipeline in (one(SEVEN), one(UNEVEN)):
        assert pipeline.linger == pipeline.stretch == pipeline.window.gap == timedelta(0)
        assert not pipeline.append_only


@given(st.integers(-200, 200), st.integers(2, 30), st.integers(1, 30), st.integers(1, 40))
def test_what_a_slot_is_made_of_are_the_cells_of_the_events_in_its_window(
    number: int, size: int, slide: int, wide: int
) -> None:
    if slide > size:
        return
    pipeline = one(hopping(timedelta(milliseconds=size), by=timedelta(milliseconds=slide)))
    kind, slot = kind_of(pipeline), number * slide
    ((start, end),) = kind.made_of(slot, slot + size)
    mine = [time for time in range(slot - 100, slot + 100) if slot in holding(time, pipeline.window)]
    assert {time - time % slide for time in mine} == set(range(start, end, slide))
    # And the other way round: just these cells' events lie in windows of the slot.
    near = [cell for cell in range(slot - 10 * slide, slot + wide * slide, slide)
            if slot in range(*windows_of((cell, cell + slide), pipeline, first=True), slide)]  # fmt: skip
    assert set(near) == {cell for cell in range(start, end, slide) if cell < slot + wide * slide}


def test_a_replay_reads_the_events_of_each_slots_windows_in_whole_cells() -> None:
    kind, slot = kind_of(one(UNEVEN)), T0 + 3 * MINUTE
    (times,) = kind.replay_reads(NO_SPARK, {slot: slot + 25 * MINUTE}, {})
    assert times == [(slot, slot + 40 * MINUTE)]
    after = slot + 100 * MINUTE
    (times,) = kind.replay_reads(NO_SPARK, dict.fromkeys((slot, slot + 10 * MINUTE, after), 0), {})
    assert times == [(slot, slot + 50 * MINUTE), (after, after + 40 * MINUTE)]
    (before,) = kind.replay_reads(NO_SPARK, {-10 * MINUTE: 15 * MINUTE}, {})
    assert before == [(-10 * MINUTE, 30 * MINUTE)]


def test_a_row_has_the_causes_of_its_own_slot_and_only_events_in_a_slot_concern_it() -> None:
    kind = kind_of(one(UNEVEN))
    assert list(kind.causes_from(T0, T0 + 25 * MINUTE)) == [T0]
    assert kind.concerned([1, 2, 3], {2, 3, 4}) == {2, 3}
    assert not kind.concerned([1], {2})
    assert kind.touched(NO_SPARK, [(5, 10), (0, 5)], {}) == [(0, 10)]
    assert kind.by_event


@pytest.mark.parametrize("window", [SEVEN, UNEVEN])
def test_random_events_lie_on_edges_and_between_them_and_meet_in_windows(window: Window) -> None:
    start, step = T0 * 1000, millis(window.step) * 1000
    kind = kind_of(one(window))
    (times,) = kind.sample_times(random.Random(1), start, 240)
    assert [times] == kind.sample_times(random.Random(1), start, 240) != kind.sample_times(random.Random(2), start, 240)
    assert len(times) == 240 and min(times) >= start
    assert max(times) < start + max(6 * step, 3 * step + millis(window.size) * 1000)
    assert sum((time - start) % (step // 8) == 0 for time in times) >= 120
    assert len({one(window).slot(time // 1000) for time in times}) >= 6


TIMES = [
    *(T0 + by for by in (0, 1, 3 * MINUTE - 1, 3 * MINUTE, 8 * MINUTE, 13 * MINUTE - 1, 13 * MINUTE)),
    *(-1, 0, -MINUTE, -5 * MINUTE, -5 * MINUTE - 1, -25 * MINUTE, -10 * MINUTE),
]


@pytest.mark.parametrize("window", [SEVEN, UNEVEN])
def test_the_windows_are_those_that_hold_an_event_and_over_when_they_end(spark: SparkSession, window: Window) -> None:
    kind, time = kind_of(one(window)), F.unix_micros("at")
    ends = {name: kind.over_at(time, every=name == "last").alias(name) for name in ("first", "last")}
    starts = F.unix_millis("window.start").alias("start")
    (windowed,) = kind.bounded([events(spark, TIMES)])
    found: dict[int, list[int]] = {}
    for row in windowed.select("id", starts).collect():
        found.setdefault(row["id"], []).append(row["start"])
    for row in events(spark, TIMES).select("id", *ends.values()).collect():
        wanted = holding(TIMES[row["id"]], window)
        assert sorted(found[row["id"]]) == wanted
        assert row["first"] == (wanted[0] + millis(window.size)) * 1000
        assert row["last"] == (wanted[-1] + millis(window.size)) * 1000


def test_an_event_is_late_by_its_windows_end_or_with_an_id_by_its_own_time(spark: SparkSession) -> None:
    assert kind_of(one(SEVEN)).late_rule(spark) == "window"
    assert kind_of(one(SEVEN, UNIQUE)).late_rule(spark) == "event"
    assert kind_of(plain(SEVEN)).late_rule(spark) == "none"


def plain(window: Window) -> Pipeline:
    """One that aggregates nothing."""
    return replace(one(window), function=lambda rides: rides.select("window", "zone"))


def test_what_the_stream_accepted_is_in_each_window_that_was_open_then(spark: SparkSession) -> None:
    """00:12 is in the windows of 23:50, 00:00 and 00:10; the first is over where the watermark is 00:15."""
    kind, time = kind_of(one(UNEVEN)), T0 + 5 * MINUTE
    late = [T0 + by * MINUTE for by in (8, 7, 18, 28)]  # 00:15, just before it, 00:25, 00:35
    late_at = F.element_at(F.array(*map(F.lit, late)), F.col("id").cast("int") + 1)
    tagged = events(spark, [time] * 4).withColumn("_late_at", late_at)
    starts: dict[int, set[int]] = {}
    (given_,) = kind.replayed([tagged], history([]))
    assert given_.columns == ["id", "zone", "at", "window"]
    for row in given_.select("id", F.unix_millis("window.start").alias("start")).collect():
        starts.setdefault(row["id"], set()).add((row["start"] - T0) // MINUTE)
    assert starts == {0: {-7, 3}, 1: {-17, -7, 3}, 2: {3}}
    (all_,) = kind.replayed([tagged], history([], "event"))
    assert all_.count() == 12, "by the event's own time it was told before: an accepted one is in all"


def test_a_stream_has_the_window_for_its_event_time_and_a_batch_no_event_time(spark: SparkSession) -> None:
    kind = kind_of(one(SEVEN))
    ticks = spark.readStream.format("rate").load().selectExpr("value AS id", "1 AS zone", "timestamp AS at")
    (frame,) = kind.unbounded([ticks])
    assert {f.name for f in frame.schema.fields if MARK in f.metadata} == {"window"}
    assert kind.streamed([frame]).columns == ["window_start", "window_end", "zone", "n"]
    (bounded,) = kind.bounded([events(spark, TIMES)])
    assert not [f.name for f in bounded.schema.fields if MARK in f.metadata]


def test_a_scope_is_the_rows_of_whole_windows_from_their_events(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that start at 00:10 and 00:20: from events of 00:10 to 00:45."""
    read: list[Any] = []

    def archived(session: SparkSession, topic: Any, ranges: list[Any], version: int) -> DataFrame:
        read.append((topic.name, ranges, version))
        return events(session, [time for time in times if any(a <= time < b for a, b in ranges)])

    times = [T0 + by * MINUTE for by in (2, 3, 12, 14, 37, 38)]
    monkeypatch.setattr("tally.kinds.windowed.events", archived)
    wanted = [(T0 + 3 * MINUTE, T0 + 13 * MINUTE), (T0 + 13 * MINUTE, T0 + 23 * MINUTE)]
    found = kind_of(one(UNEVEN)).scope(spark, wanted, {"rides": 3})
    assert found.ranges == [(T0 + 3 * MINUTE, T0 + 23 * MINUTE)]
    rows = {((row["window_start"].timestamp() * 1000 - T0) / MINUTE, row["n"]) for row in found.rows.collect()}
    assert rows == {(3, 3), (13, 2)}, "00:10: 3, 12, 14; 00:20: 14, 37; what is at 38 is of 00:30 on"
    assert [(name, version) for name, _, version in read] == [("rides", 3)]
    assert read[0][1] == [(T0 + 3 * MINUTE, T0 + 48 * MINUTE)]


def test_cells_behind_ranges_are_merged_for_each_topic() -> None:
    at = T0 + 3 * MINUTE
    assert event_ranges(one(UNEVEN), [(at, at + 10 * MINUTE)]) == [[(at, at + 40 * MINUTE)]]
    both = event_ranges(joined(UNEVEN), [(at, at + 10 * MINUTE)])
    assert both == [[(at, at + 40 * MINUTE)], [(at - 10 * MINUTE, at + 40 * MINUTE)]]
