"""Waiting: asked at once and in the end, no longer than was said; ever later where it keeps failing."""

from __future__ import annotations

import time

import pytest

from tally.host.waiting import backoff, until


def test_what_is_so_already_is_not_waited_for() -> None:
    assert until(lambda: True, seconds=0, every=60, sleep=lambda _: pytest.fail("it sleeps"))


def test_it_is_asked_again_until_it_is_so() -> None:
    answers = iter([False, None, "now", False])
    assert until(lambda: next(answers), seconds=10, every=0.001)
    assert list(answers) == [False], "and not once more"


def test_what_never_is_ends_in_time_with_a_last_look() -> None:
    began, asked = time.monotonic(), list[float]()
    assert not until(lambda: asked.append(time.monotonic() - began), seconds=0.2, every=0.05)
    assert len(asked) > 1 and asked[-1] >= 0.2


def test_what_the_question_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        until(lambda: 1 / 0, seconds=10, every=0.001)


def test_who_fails_again_waits_twice_as_long_up_to_a_limit_and_out_of_step() -> None:
    waits = [[backoff(failures, 2.0, 60.0) for _ in range(50)] for failures in (1, 2, 3, 6, 1000)]
    for found, middle in zip(waits, (2, 4, 8, 60, 60), strict=True):
        assert all(0.8 * middle <= wait <= 1.2 * middle for wait in found)
        assert len(set(found)) > 1
