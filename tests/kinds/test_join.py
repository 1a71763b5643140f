"""Joins: windows of the first topic's events, and what lies within the reach of them in the others."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import cast

import pytest
from declared import MINUTE, PAID, RIDES, T0, TIPPED, history, joined
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from tally.base.duration import from_millis
from tally.base.errors import DefinitionError
from tally.catalog.declare import hopping, session, tumbling
from tally.catalog.ranges import windows_of
from tally.kinds import kind_of
from tally.kinds.frames import MARK
from tally.kinds.join import Join, window_above_joins

SEVEN = tumbling("7 minutes")
UNEVEN = hopping("25 minutes", by="10 minutes")
NO_SPARK = cast(SparkSession, None)
TWO, THREE = (joined(SEVEN, topics) for topics in ((RIDES, PAID), (RIDES, PAID, TIPPED)))


def test_topics_that_are_joined_are_of_this_kind_and_sessions_of_them_are_refused() -> None:
    assert isinstance(kind_of(TWO), Join) and isinstance(kind_of(joined(UNEVEN)), Join)
    with pytest.raises(DefinitionError, match="sessions over a join"):
        joined(session("7 minutes"))


def test_a_window_lingers_a_reach_for_each_topic_that_its_events_are_joined_with() -> None:
    assert (TWO.linger, THREE.linger) == (timedelta(minutes=4), timedelta(minutes=8))
    assert not TWO.append_only


def test_a_join_looks_at_events_own_times_and_knows_keys_by_no_event() -> None:
    kind = kind_of(TWO)
    assert kind.late_rule(NO_SPARK) == "event"
    assert not kind.by_event


def test_a_replay_reads_the_other_topics_as_far_as_their_events_may_lie_apart() -> None:
    slot = T0 - 3 * MINUTE  # 00:04
    step = 7 * MINUTE
    ends = {slot: slot + step}
    assert kind_of(TWO).replay_reads(NO_SPARK, ends, {}) == [
        [(slot, slot + 2 * step)],
        [(slot - step, slot + 3 * step)],
    ]
    far = kind_of(THREE).replay_reads(NO_SPARK, ends, {})
    assert far[1] == far[2] == [(slot - 2 * step, slot + 4 * step)], "8 minutes to either side, in whole cells"


def test_a_slot_is_made_of_its_window_and_of_what_lies_in_reach_of_it() -> None:
    slot, step = T0 - 3 * MINUTE, 7 * MINUTE
    assert kind_of(TWO).made_of(slot, slot + step) == [(slot, slot + step), (slot - step, slot + 2 * step)]
    uneven, slot = kind_of(joined(UNEVEN)), T0 + 3 * MINUTE
    assert uneven.made_of(slot, slot + 25 * MINUTE) == [
        (slot, slot + 30 * MINUTE),
        (slot - 10 * MINUTE, slot + 30 * MINUTE),
    ]
    assert uneven.made_of(-10 * MINUTE, 0)[1] == (-20 * MINUTE, 20 * MINUTE), "the window ends at 15, and 4 minutes on"
    assert list(uneven.causes_from(slot, slot + 25 * MINUTE)) == [slot]


@given(st.integers(-60, 60), st.integers(1, 20), st.integers(1, 20), st.integers(0, 25))
def test_an_event_of_another_topic_is_in_a_slot_just_where_the_slot_is_made_of_its_cell(
    number: int, size: int, slide: int, reach: int
) -> None:
    if slide > size:
        return
    window = hopping(timedelta(milliseconds=size), by=timedelta(milliseconds=slide))
    pipeline, slot = joined(window, reach=f"{reach} ms"), number * slide
    start, end = kind_of(pipeline).made_of(slot, slot + size)[1]
    for cell in range(slot - 6 * (size + reach), slot + 6 * (size + reach), 1):
        if cell % slide == 0:
            near = range(*windows_of((cell, cell + slide), pipeline, first=False), slide)
            assert (slot in near) == (start <= cell < end)


def test_random_events_of_other_topics_lie_within_the_reach_of_one_of_the_first() -> None:
    first, second, third = kind_of(THREE).sample_times(random.Random(3), T0 * 1000, 240)
    reach = 4 * MINUTE * 1000
    for others in (second, third):
        apart = [min(abs(time - mine) for mine in first) for time in others]
        assert len(others) == 240 and max(apart) <= reach
    assert kind_of(TWO).sample_times(random.Random(3), T0 * 1000, 240) == [first, second]


def rides(spark: SparkSession, minutes: list[int]) -> DataFrame:
    rows = [(at, 1, from_millis(T0 + minute * MINUTE)) for at, minute in enumerate(minutes)]
    return spark.createDataFrame(rows, RIDES.ddl)


def paid(spark: SparkSession, minutes: list[int]) -> DataFrame:
    rows = [(at, from_millis(T0 + minute * MINUTE)) for at, minute in enumerate(minutes)]
    return spark.createDataFrame(rows, PAID.ddl)


def test_accepted_events_are_in_all_their_windows_whatever_the_watermark_was(spark: SparkSession) -> None:
    """Late was told by their own times, before they reached the join."""
    frames = [one.withColumn("_late_at", F.lit(T0 + 99 * MINUTE)) for one in (rides(spark, [5]), paid(spark, [6]))]
    first, second = kind_of(joined(UNEVEN)).replayed(frames, history([99], "event"))
    assert (first.columns, second.columns) == (["id", "zone", "at", "window"], ["ride", "paid_at"])
    assert first.count() == 3


def test_a_pair_is_counted_in_the_window_of_its_first_event(spark: SparkSession) -> None:
    """00:07 with 00:11 lies in the window of 00:04, not of 00:11; 00:18 and 00:23 are 5 minutes apart."""
    rows = kind_of(TWO).applied([rides(spark, [0, 11]), paid(spark, [4, 16])]).collect()
    assert [(row["window_start"].timestamp() * 1000 - T0, row["n"]) for row in rows] == [(-3 * MINUTE, 1)]


def test_a_frame_bears_one_event_time_and_above_the_join_that_is_the_window(spark: SparkSession) -> None:
    def marked(frame: DataFrame) -> set[str]:
        return {field.name for field in frame.schema.fields if MARK in field.metadata}

    ticks = spark.readStream.format("rate").load()
    frames = [
        ticks.selectExpr("value AS id", "1 AS zone", "timestamp AS at"),
        ticks.selectExpr("value AS ride", "timestamp AS paid_at"),
    ]
    plain, kind = ClassicFrame.groupBy, kind_of(TWO)
    given_ = kind.unbounded(frames)
    assert [marked(frame) for frame in given_] == [{"at"}, {"paid_at"}]
    plan = kind.streamed(given_)._jdf.queryExecution().analyzed()
    (groups,) = [one for one in aggregates(plan)]
    windows = [groups.apply(at) for at in range(groups.size()) if groups.apply(at).dataType().typeName() == "struct"]
    assert [one.metadata().contains(MARK) for one in windows] == [True]
    assert ClassicFrame.groupBy is plain, "and it is as it was"


def test_functions_that_run_beside_a_join_group_as_they_always_do(spark: SparkSession) -> None:
    marked = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    windowed, plain = marked.withColumn("window", F.window("timestamp", "1 second")), ClassicFrame.groupBy

    def nodes() -> list[str]:
        plan = windowed.groupBy("window").count()._jdf.queryExecution().analyzed()
        return [line.strip(" +-:").split()[0] for line in str(plan.treeString()).splitlines()]

    def of_a_join() -> list[str]:
        with window_above_joins(RIDES):
            time.sleep(0.01)
            return nodes()

    alone = nodes()
    with window_above_joins(RIDES), ThreadPoolExecutor(1) as beside:
        mine = nodes()
        assert beside.submit(nodes).result() == alone != mine
    with ThreadPoolExecutor(4) as beside:
        assert [one.result() for one in [beside.submit(of_a_join) for _ in range(8)]] == [mine] * 8
    assert ClassicFrame.groupBy is plain


def aggregates(plan: object) -> list:  # type: ignore[type-arg]
    """What the aggregations of a plan group by."""
    mine = [plan.groupingExpressions()] if plan.nodeName() == "Aggregate" else []  # type: ignore[attr-defined]
    below = plan.children()  # type: ignore[attr-defined]
    return mine + [one for at in range(below.size()) for one in aggregates(below.apply(at))]
