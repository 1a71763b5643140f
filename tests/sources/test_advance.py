"""Partitions of a topic advance together in broker time, however unevenly they are filled."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from tally.sources.advance import LookUp, Step, advance, span

T0 = 1_760_000_000_000
Log = dict[int, list[int]]  # the broker times of each partition's records


def look_up(log: Log) -> LookUp:
    def found(moment: int) -> dict[int, int]:
        places = {p: bisect_left(times, moment) for p, times in log.items()}
        return {p: at if at < len(log[p]) else -1 for p, at in places.items()}

    return found


def ends_of(log: Log) -> dict[int, int]:
    return {p: len(times) for p, times in log.items()}


def all_steps(log: Log, limit: int) -> list[Step]:
    at, reached, steps = dict.fromkeys(log, 0), 0, []
    while at != ends_of(log):
        step = advance(at, ends_of(log), limit, reached, look_up(log))
        assert step.ends != at, "it always gets on"
        at, reached = step.ends, step.moment
        steps.append(step)
    return steps


def test_all_there_is_where_that_is_no_more_than_the_limit() -> None:
    log = {0: [T0, T0 + 1], 1: [T0]}
    assert advance({0: 0, 1: 0}, ends_of(log), 3, 0, look_up(log)).ends == {0: 2, 1: 1}


def test_no_partition_is_read_past_a_moment_before_which_another_has_records_left() -> None:
    log = {0: [T0 + 10 * i for i in range(7000)], 1: [T0 + 1000 * i for i in range(70)]}
    reached = 0
    for step in all_steps(log, 500)[:-1]:
        last = {p: log[p][end - 1] for p, end in step.ends.items() if end}
        following = {p: log[p][end] for p, end in step.ends.items() if end < len(log[p])}
        assert max(last.values()) < min(following.values())
        assert step.moment >= reached
        reached = step.moment


def test_a_partition_that_fills_in_bursts_keeps_with_the_others() -> None:
    log = {0: [T0 + i for i in range(4000)], 1: [T0 + 3000 + i // 100 for i in range(4000)]}
    for step in all_steps(log, 1000):
        assert step.ends[1] == 0 or step.ends[0] >= 2900


def test_more_than_the_limit_in_one_millisecond_is_taken_in_shares() -> None:
    log = {0: [T0] * 100, 1: [T0] * 300}
    step = advance({0: 0, 1: 0}, ends_of(log), 40, 0, look_up(log))
    assert step.ends == {0: 10, 1: 30}


def test_a_known_moment_spares_most_requests() -> None:
    log = {0: [T0 + i for i in range(100_000)]}
    asked = []

    def counted(moment: int) -> dict[int, int]:
        asked.append(moment)
        return dict(look_up(log)(moment))

    advance({0: 10_000}, ends_of(log), 5000, T0 + 10_000, counted)
    assert len(asked) <= 8


times = st.lists(st.integers(T0, T0 + 5000), max_size=60).map(sorted)


@given(logs=st.lists(times, min_size=1, max_size=4), limit=st.integers(1, 50))
def test_every_record_is_read_once_and_no_step_is_larger_than_asked(logs: list[list[int]], limit: int) -> None:
    log = dict(enumerate(logs))
    at = dict.fromkeys(log, 0)
    for step in all_steps(log, limit):
        assert all(step.ends[p] >= at[p] for p in log)
        assert 0 < span(at, step.ends) <= limit
        at = step.ends


@given(logs=st.lists(st.lists(st.integers(T0, T0 + 5000), max_size=60), min_size=1, max_size=4))
def test_time_stamps_out_of_order_never_stop_it(logs: list[list[int]]) -> None:
    """Producers may set the time: a lookup then gives the first record that is late enough, whatever follows it."""
    log = dict(enumerate(logs))

    def first(moment: int) -> dict[int, int]:
        return {p: next((at for at, time in enumerate(found) if time >= moment), -1) for p, found in log.items()}

    at, reached = dict.fromkeys(log, 0), 0
    for _ in range(sum(map(len, logs)) + 1):
        if at == ends_of(log):
            return
        step = advance(at, ends_of(log), 7, reached, first)
        at, reached = step.ends, step.moment
    raise AssertionError("it stands still")
