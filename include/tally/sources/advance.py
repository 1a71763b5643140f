"""How far one micro-batch reads each partition of a topic: to its end, or as far as one moment of broker time.

A stream that catches up takes a share of what waits. Partitions that fill unevenly, each read by its share, drift apart
in time, and what the slow ones hold is late by the watermark of the fast ones. So they advance together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Offsets = Mapping[int, int]
# (moment in milliseconds) -> the first offset of each partition that the broker had then or later; -1: none.
LookUp = Callable[[int], Offsets]

# The search begins with a second of broker time, which a stream that is hardly behind need not go past.
FIRST_SPAN = 1000
# A micro-batch of this share of the limit is large enough: to find its last records costs a request for each halving.
ENOUGH = 0.8


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where a micro-batch ends in each partition, and the moment (broker time, ms) before which all is read by then."""

    ends: dict[int, int]
    moment: int


def advance(starts: Offsets, ends: Offsets, limit: int, reached: int, look_up: LookUp) -> Step:
    """The next step from `starts` of at most `limit` offsets; all there is, where that is no more.

    `reached` is the moment of the step before, or 0 where it is not known.
    """
    if span(starts, ends) <= limit:
        return Step(ends=dict(ends), moment=reached)

    def at(moment: int) -> dict[int, int]:
        found = look_up(moment)
        return {
            p: end if found.get(p, -1) < 0 else min(end, max(starts.get(p, 0), found[p])) for p, end in ends.items()
        }

    low, high, most = bracket(starts, limit, reached, at)
    while high - low > 1 and span(starts, most) < ENOUGH * limit:
        middle = (low + high) // 2
        found = at(middle)
        if span(starts, found) <= limit:
            low, most = middle, found
        else:
            high = middle
    if span(starts, most) > 0:
        return Step(ends=most, moment=low)
    return Step(ends=shared(starts, at(high), limit), moment=low)  # more than the limit within one millisecond


def bracket(
    starts: Offsets, limit: int, reached: int, at: Callable[[int], dict[int, int]]
) -> tuple[int, int, dict[int, int]]:
    """A moment up to which the limit holds, one up to which it doesn't, and where the first one lies."""
    low, most = reached, at(reached)
    if span(starts, most) > limit:  # what was reached is of another time: records came with older time stamps
        low, most = 0, {partition: starts.get(partition, 0) for partition in most}
    width = FIRST_SPAN
    while span(starts, found := at(low + width)) <= limit:
        low, most, width = low + width, found, 2 * width
    return low, low + width, most


def shared(starts: Offsets, ends: Offsets, limit: int) -> dict[int, int]:
    """Each partition's share of the limit, by what it holds up to these ends; at least one record in all."""
    whole = span(starts, ends)
    taken = {p: starts.get(p, 0) + (end - starts.get(p, 0)) * limit // whole for p, end in ends.items()}
    if span(starts, taken) == 0:
        first = next(p for p, end in sorted(ends.items()) if end > starts.get(p, 0))
        taken[first] += 1
    return taken


def span(starts: Offsets, ends: Offsets) -> int:
    """How many offsets lie between."""
    return sum(max(0, end - starts.get(partition, 0)) for partition, end in ends.items())
