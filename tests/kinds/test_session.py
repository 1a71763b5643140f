"""Sessions: where they begin and end, how far a restatement must go for them, and what a stream makes of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from declared import MINUTE, RIDES, T0, UNIQUE, history, one
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.duration import from_millis
from tally.catalog.declare import session
from tally.catalog.ranges import Range
from tally.kinds import kind_of
from tally.kinds.session import Sessions
from tally.kinds.session_replay import Walked, walk
from tally.kinds.session_scope import FIRST_GAPS, Cells, whole

SEVEN = session("7 minutes")
GAP = 7 * MINUTE


def kind() -> Sessions:
    found = kind_of(one(SEVEN))
    assert isinstance(found, Sessions)
    return found


def test_a_session_lingers_a_gap_and_its_rows_are_only_appended() -> None:
    pipeline = one(SEVEN)
    assert pipeline.linger == pipeline.window.gap == pipeline.window.step == timedelta(minutes=7)
    assert pipeline.append_only
    assert pipeline.slot(T0) == T0 - 3 * MINUTE and pipeline.slot(-1) == -GAP


def test_a_session_is_made_of_events_up_to_a_gap_around_it_and_has_causes_from_all_of_it() -> None:
    slot = T0 - 3 * MINUTE
    assert kind().made_of(slot, slot + 20 * MINUTE) == [(slot - GAP, slot + 28 * MINUTE)]
    assert kind().made_of(-GAP, 1) == [(-2 * GAP, 2 * GAP)]
    assert list(kind().causes_from(slot, slot + 20 * MINUTE)) == [slot, slot + GAP, slot + 2 * GAP]
    assert list(kind().causes_from(slot, slot + GAP)) == [slot]
    assert kind().by_event


def test_an_event_may_be_of_a_session_of_any_slot() -> None:
    assert kind().concerned([1], {2, 3}) == {2, 3}
    assert kind().concerned([], {2, 3}) == set()


def test_random_events_make_sessions_with_pauses_between_them() -> None:
    start, gap = T0 * 1000, GAP * 1000
    (times,) = kind().sample_times(random.Random(1), start, 240)
    assert [times] == kind().sample_times(random.Random(1), start, 240)
    stretches = {(time - start) // (3 * gap) for time in times}
    assert stretches == set(range(8))
    assert all((time - start) % (3 * gap) <= 3 * gap // 2 for time in times if time % 1_000_000)


# How far to go.


def sessions_of(times: Sequence[int], gap: int) -> list[Range]:
    """The sessions of one key: each event lasts a gap, and what begins just where another ends goes on with it."""
    found: list[Range] = []
    for time in sorted(times):
        if found and time <= found[-1][1]:
            found[-1] = (found[-1][0], time + gap)
        else:
            found.append((time, time + gap))
    return found


def found_in(keys: Sequence[Sequence[int]], gap: int, read: Sequence[Range]) -> Cells:
    """The sessions of these keys' events in some ranges, by cell."""
    ends: dict[int, int] = {}
    for times in keys:
        for start, end in sessions_of([time for time in times if any(a <= time < b for a, b in read)], gap):
            ends[start - start % gap] = max(end, ends.get(start - start % gap, end))
    return Cells.made(ends, gap)


def widened(keys: Sequence[Sequence[int]], gap: int, ranges: Sequence[Range]) -> tuple[list[Range], list[Range], int]:
    """What is to be restated and read, and in how many passes that was found."""
    passes = 0

    def look(read: Sequence[Range]) -> Cells:
        nonlocal passes
        passes += 1
        return found_in(keys, gap, read)

    every = [time for times in keys for time in times]
    starts, read = whole(ranges, gap, (min(every, default=0), max(every, default=0)), look)
    return starts, read, passes


def test_a_session_that_crosses_an_edge_is_taken_in_and_no_other() -> None:
    """A gap of 10: [3, 38), [52, 62), [80, 105), and of another key [40, 50)."""
    keys = [[3, 12, 21, 28, 52, 80, 88, 95], [40]]
    assert widened(keys, 10, [(30, 40)])[0] == [(0, 40)]
    assert widened(keys, 10, [(40, 50)])[0] == [(40, 50)]
    assert widened(keys, 10, [(60, 80)])[0] == [(50, 80)]
    assert widened(keys, 10, [(30, 40), (100, 110)])[0] == [(0, 40), (80, 110)]


def test_an_event_just_where_what_is_read_ends_goes_on_with_the_session_that_ends_there() -> None:
    """[0, 35) is asked for; beside it another key's begins at 30 and, of what is read first, ends where that does."""
    keys = [[0, 10, 20, 25], [30, 40, 50, 60, 70, 80, 90, 95]]
    (asked,), (read,), _ = widened(keys, 10, [(0, 10)])
    assert asked == (0, 40) and FIRST_GAPS * 10 + 10 == 90
    assert read[1] > 95, "what starts at 30 is replaced too, and so must be whole"


def test_a_long_session_is_followed_to_both_its_ends_also_before_1970() -> None:
    """An event every 9 for 1,800: FIRST_GAPS times a gap of 10 around its middle are not enough."""
    times = list(range(-903, 900, 9))
    assert FIRST_GAPS * 10 < 100
    starts, read, passes = widened([times], 10, [(0, 10)])
    assert starts == [(-910, 910)] and 2 < passes < 8
    assert len(read) == 1 and read[0][0] <= min(times) and read[0][1] > max(times)


@given(
    st.lists(st.lists(st.integers(-150, 150), max_size=25), min_size=1, max_size=3), st.integers(1, 12),
    st.lists(st.tuples(st.integers(-15, 14), st.integers(1, 3)), min_size=1, max_size=3),
)  # fmt: skip
def test_all_that_starts_in_the_widened_ranges_is_whole_and_meets_no_edge(
    keys: list[list[int]], gap: int, cells: list[tuple[int, int]]
) -> None:
    ranges = [(at * gap, (at + wide) * gap) for at, wide in cells]
    starts, read, _ = widened(keys, gap, ranges)
    for times in keys:
        every = sessions_of(times, gap)
        seen = sessions_of([time for time in times if any(a <= time < b for a, b in read)], gap)
        for start, end in every:
            if any(start < b and end > a for a, b in ranges):
                assert any(a <= start < b and end <= b for a, b in starts)
        mine = [one for one in every if any(a <= one[0] < b for a, b in starts)]
        assert mine == [one for one in seen if any(a <= one[0] < b for a, b in starts)]
    assert all(edge % gap == 0 for part in starts for edge in part)


# What the stream makes of them.


def walked(times: Sequence[int], batches: Sequence[int], watermarks: Sequence[int]) -> list[Walked]:
    return walk(times, batches, watermarks, 10)


def of(session: Range | None, *, split: bool = False) -> Walked:
    return Walked(session=session, split=split)


def test_events_that_meet_are_one_session_which_is_emitted_when_the_watermark_reaches_its_end() -> None:
    assert walked([0, 10, 21], [0, 0, 0], [31]) == [of((0, 20)), of((0, 20)), of((21, 31))]
    assert walked([0, 10], [0, 0], [19]) == [of(None), of(None)]
    assert walked([0, 10], [0, 0], [19, 20]) == [of((0, 20)), of((0, 20))]


def test_an_event_between_two_open_sessions_makes_one_of_them() -> None:
    assert walked([0, 18, 9], [0, 0, 1], [5, 30]) == [of((0, 28))] * 3


def test_an_event_beside_a_session_that_is_over_begins_one_of_its_own() -> None:
    """The first was emitted after micro-batch 0; what comes to it in micro-batch 1 is not late, and is split off."""
    assert walked([0, 5, 12], [0, 0, 1], [15, 40]) == [of((0, 15)), of((0, 15)), of((12, 22), split=True)]
    assert walked([0, 5, 16], [0, 0, 1], [15, 40]) == [of((0, 15)), of((0, 15)), of((16, 26))]
    assert walked([0, 5, 12], [0, 0, 1], [14, 40]) == [of((0, 22))] * 3, "it was still open"


def test_what_is_emitted_between_micro_batches_without_events_is_gone_too() -> None:
    assert walked([0, 8], [0, 3], [5, 10, 10, 30]) == [of((0, 10)), of((8, 18), split=True)]


def test_within_a_micro_batch_events_are_taken_in_the_order_of_their_times() -> None:
    """Also those that come in any other: Spark sorts them before it merges."""
    assert walked([20, 0, 10], [0, 0, 0], [40]) == [of((0, 30))] * 3


# On Spark.


def events(spark: SparkSession, minutes: Sequence[float], zones: Sequence[int] | None = None) -> DataFrame:
    """Events at so many minutes after T0."""
    rows = [
        (at, zone, from_millis(T0 + int(minute * MINUTE)))
        for at, (minute, zone) in enumerate(zip(minutes, zones or [1] * len(minutes), strict=True))
    ]
    return spark.createDataFrame(rows, RIDES.ddl)


def minutes(row: dict[str, object], name: str) -> float:
    return (row[name].timestamp() * 1000 - T0) / MINUTE  # type: ignore[attr-defined]


def test_an_event_is_late_by_its_own_sessions_end_or_with_an_id_by_its_own_time(spark: SparkSession) -> None:
    assert kind().late_rule(spark) == "window"
    assert kind_of(one(SEVEN, UNIQUE)).late_rule(spark) == "event"
    for every in (True, False):
        over = kind().over_at(F.lit(T0 * 1000), every=every)
        assert spark.range(1).select(over.alias("at")).collect()[0]["at"] == (T0 + GAP) * 1000


def test_a_scope_holds_sessions_whole_and_a_filter_on_their_starts_cuts_none(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of zone 1 [0, 18) and [30, 37), of zone 2 [16, 23), on a grid that begins at -3: 4 to 11 is asked for."""
    frame = events(spark, [0, 5, 11, 30, 16], [1, 1, 1, 1, 2])

    def some(_: object, __: object, ranges: Sequence[Range], ___: object) -> DataFrame:
        keep = F.lit(False)
        for start, end in ranges:
            keep |= (F.unix_millis("at") >= start) & (F.unix_millis("at") < end)
        return frame.where(keep)

    monkeypatch.setattr("tally.kinds.session.events", some)
    monkeypatch.setattr("tally.kinds.session.archived", lambda *_: frame)
    wanted = [(T0 + 4 * MINUTE, T0 + 11 * MINUTE)]
    found = kind().scope(spark, wanted, {"rides": 0})
    assert found.ranges == [(T0 - 3 * MINUTE, T0 + 18 * MINUTE)], "to the end of the session, on the grid"
    rows = {(minutes(row.asDict(), "window_start"), minutes(row.asDict(), "window_end"), row["zone"], row["n"])
            for row in found.rows.collect()}  # fmt: skip
    assert rows == {(0, 18, 1, 3), (16, 23, 2, 1)}
    assert kind().touched(spark, [], {"rides": 0}) == []
    ((start, end),) = kind().replay_reads(spark, {T0 + 4 * MINUTE: T0 + 18 * MINUTE}, {"rides": 0})[0]
    assert start <= T0 and end > T0 + 11 * MINUTE


def tagged(spark: SparkSession, minutes: Sequence[float], batches: Sequence[int], late: Sequence[float]) -> DataFrame:
    """Accepted events with their micro-batches and the watermarks that these ran under."""
    places = [(at, batch, T0 + int(mark * MINUTE)) for at, (batch, mark) in enumerate(zip(batches, late, strict=True))]
    facts = spark.createDataFrame(places, "id BIGINT, _batch_index BIGINT, _late_at BIGINT")
    return events(spark, minutes).join(facts, "id").selectExpr(
        "*", "0 AS _partition", "id AS _offset", "'accepted' AS _fate", "true AS _differs", "false AS _filtered",
        "CAST(-1 AS BIGINT) AS _again_index", "CAST(NULL AS BIGINT) AS _again_late_at",
    )  # fmt: skip


def test_a_replay_puts_events_into_the_sessions_that_the_stream_emitted(spark: SparkSession) -> None:
    """[0, 12) is over with micro-batch 0, so 10 is split off; 50 is open at the end; 3 was late by itself."""
    told = tagged(spark, [0, 5, 10, 50, 3], [0, 0, 1, 1, 1], [-99, -99, 12, 12, 12])
    marks = history([12, 43])
    (given_,) = kind().replayed([told], marks)
    assert given_.columns == ["id", "zone", "at", "window"]
    rows = given_.select("id", "window.*").collect()
    found = {row["id"]: (minutes(row.asDict(), "start"), minutes(row.asDict(), "end")) for row in rows}
    assert found == {0: (0, 12), 1: (0, 12), 2: (10, 17)}
    split = {row["id"]: row["_split"] for row in kind().with_split(told, marks).collect()}
    assert split == {0: False, 1: False, 2: True, 3: False, 4: False}


def test_only_keys_whose_rows_differ_are_followed(spark: SparkSession) -> None:
    told = tagged(spark, [0, 1], [0, 0], [0, 0]).withColumn("zone", F.when(F.col("id") == 1, 2))
    keys = spark.createDataFrame([(2,)], "_key_zone INT")
    differs = {row["zone"]: row["_differs"] for row in kind().narrowed(told, keys).collect()}
    assert differs == {None: False, 2: True}
    keys = spark.createDataFrame([(None,)], "_key_zone INT")
    differs = {row["zone"]: row["_differs"] for row in kind().narrowed(told, keys).collect()}
    assert differs == {None: True, 2: False}, "null is a key"
    assert kind().narrowed(told, keys).columns == told.columns
