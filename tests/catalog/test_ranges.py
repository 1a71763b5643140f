"""Ranges of time against sets of instants, and the windows that an event touches against trying each of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.base.errors import TallyError
from tally.catalog.declare import hopping, session, topic, tumbling
from tally.catalog.ranges import Range, aligned, ceil, events_of, floor, meets, merge, windows_of, without
from tally.catalog.spec import Pipeline, Window

ranges = st.lists(st.tuples(st.integers(-40, 40), st.integers(-40, 40)), max_size=8)
MS = timedelta(milliseconds=1)


def instants(of: list[Range]) -> set[int]:
    return {at for start, end in of for at in range(start, end)}


def pipeline(window: Window, reach: int | None) -> Pipeline:
    span = None if reach is None else reach * MS
    reads = (topic("a", schema="t TIMESTAMP", event_time="t", lateness="1 s"),) * 2
    return Pipeline(
        name="p", reads=reads, window=window, key=("k",), reach=span, function=len, file="p.py", line=1, doc=""
    )


@given(ranges)
def test_merge_keeps_the_instants_in_few_sorted_ranges(given_: list[Range]) -> None:
    merged = merge(given_)
    assert instants(merged) == instants(given_)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(merged)) and all(a < b for a, b in merged)


@given(ranges, st.integers(1, 4))
def test_merge_to_a_few_ranges_loses_nothing(given_: list[Range], most: int) -> None:
    merged = merge(given_, most=most)
    assert len(merged) <= most and instants(given_) <= instants(merged)
    gaps = sorted(b[0] - a[1] for a, b in zip(merge(given_), merge(given_)[1:], strict=False))
    filled = len(instants(merged)) - len(instants(given_))
    assert filled == sum(gaps[: max(0, len(gaps) + 1 - most)]), "the narrowest gaps are filled"


@given(ranges, ranges)
def test_without_takes_just_that_away(given_: list[Range], taken: list[Range]) -> None:
    assert instants(without(given_, taken)) == instants(given_) - instants(taken)


@given(ranges, st.tuples(st.integers(-40, 40), st.integers(1, 20)))
def test_meets_means_some_instant(given_: list[Range], wanted: tuple[int, int]) -> None:
    one = (wanted[0], wanted[0] + wanted[1])
    assert meets(merge(given_), one) == bool(instants([one]) & instants(given_))


@given(st.integers(-1000, 1000), st.integers(1, 50))
def test_floor_and_ceil_lie_on_the_grid_and_nearest(at: int, step: int) -> None:
    assert floor(at, step) % step == 0 and floor(at, step) <= at < floor(at, step) + step
    assert ceil(at, step) % step == 0 and ceil(at, step) - step < at <= ceil(at, step)


@given(
    st.integers(1, 4), st.integers(1, 5), st.one_of(st.none(), st.integers(0, 15)), st.booleans(),
    st.integers(-30, 30), st.integers(1, 12),
)  # fmt: skip
def test_windows_of_events_are_all_that_any_of_them_is_part_of(
    slide: int, times: int, reach: int | None, first: bool, start: int, length: int
) -> None:
    size = slide * times
    window = tumbling(size * MS) if times == 1 else hopping(size * MS, by=slide * MS)
    declared, far = pipeline(window, reach), 0 if first or reach is None else reach
    event = (start, start + length)
    # Joined events may lie up to `reach` on either side of one in the window.
    starts = range(-240, 240, slide)
    part = [w for w in starts if any(w - far <= at < w + size + far for at in range(*event))]
    found = windows_of(event, declared, first=first)
    assert part == list(range(found[0], found[1], slide))
    for one in range(found[0], found[1], slide):
        needed = events_of((one, one + slide), declared, first=first)
        assert needed[0] <= one - far and needed[1] >= one + size + far


@pytest.mark.parametrize(
    ("window", "step"),
    [(tumbling("1 minute"), 60_000), (hopping("15 minutes", by="1 minute"), 60_000), (session("30 s"), 30_000)],
)
def test_a_range_is_widened_to_whole_steps(window: Window, step: int) -> None:
    declared = pipeline(window, None)
    assert aligned((1, step + 1), declared) == (0, 2 * step)
    assert aligned((step, 2 * step), declared) == (step, 2 * step)
    with pytest.raises(TallyError, match="holds nothing"):
        aligned((step, step), declared)


def test_topics_that_join_in_a_chain_may_lie_apart_by_more_than_one_reach() -> None:
    two = pipeline(tumbling(10 * MS), 5)
    three = replace(two, reads=(*two.reads, two.reads[0]))
    assert events_of((0, 10), two, first=False) == (-5, 25)
    assert events_of((0, 10), three, first=False) == (-10, 30)
    assert (two.linger, three.linger) == (5 * MS, 10 * MS)
    assert windows_of((29, 30), two, first=False) == (20, 40), "the first topic's event lies from 24 to 34"
    assert windows_of((29, 30), three, first=False) == (10, 40), "from 19 to 39"
