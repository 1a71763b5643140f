"""Half-open ranges of time in milliseconds, and which of them a change of events touches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from tally.base.duration import from_millis, iso, millis
from tally.base.errors import TallyError
from tally.catalog.spec import Pipeline

Range = tuple[int, int]


def floor(at: int, step: int) -> int:
    return at - at % step


def ceil(at: int, step: int) -> int:
    return -floor(-at, step)


def closed_starts(pipeline: Pipeline, watermark: int, settle: timedelta) -> int:
    """A window that starts before this is closed under a watermark, if it is no longer than the declared size."""
    passed = watermark - millis(pipeline.linger) - millis(settle)
    return ceil(max(0, passed - millis(pipeline.window.size)) + 1, millis(pipeline.window.step))


def merge(ranges: Iterable[Range], *, most: int | None = None) -> list[Range]:
    """The same instants as few sorted ranges; with `most`, the narrowest gaps are filled until so many are left."""
    merged: list[Range] = []
    for start, end in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    if most is None or len(merged) <= most:
        return merged
    widest = sorted(range(1, len(merged)), key=lambda at: merged[at - 1][1] - merged[at][0])[: most - 1]
    firsts = [0, *sorted(widest)]
    return [(merged[a][0], merged[b - 1][1]) for a, b in zip(firsts, [*firsts[1:], len(merged)], strict=True)]


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """What of the ranges lies in none of those taken."""
    gone = merge(taken)
    left: list[Range] = []
    at = 0
    for start, end in merge(ranges):
        while at < len(gone) and gone[at][1] <= start:
            at += 1
        here = at
        while here < len(gone) and gone[here][0] < end:
            if start < gone[here][0]:
                left.append((start, gone[here][0]))
            start = gone[here][1]
            here += 1
        if start < end:
            left.append((start, end))
    return left


def overlap(ranges: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """What lies in both."""
    mine = merge(ranges)
    return without(mine, without(mine, others))


def meets(merged: Sequence[Range], wanted: Range) -> bool:
    """Whether one of the merged ranges has an instant of the wanted one."""
    at = bisect_left(merged, (wanted[1], wanted[1])) - 1
    return at >= 0 and wanted[0] < merged[at][1]


def aligned(wanted: Range, pipeline: Pipeline) -> Range:
    """The range widened to whole steps of the pipeline's grid of windows; an empty one is refused."""
    if wanted[0] >= wanted[1]:
        raise TallyError(
            f"from {iso(from_millis(wanted[0]))} to {iso(from_millis(wanted[1]))} holds nothing",
            pipeline=pipeline.name,
            field="--to",
            cure="give a later --to: ranges are half-open, [from, to)",
        )
    step = millis(pipeline.window.step)
    return floor(wanted[0], step), ceil(wanted[1], step)


@dataclass(frozen=True, kw_only=True)
class Span:
    """How far around a window's start the events lie that make it, in milliseconds."""

    before: int
    after: int


def span(pipeline: Pipeline, *, first: bool) -> Span:
    """Events of the first topic lie in [start, start + size); those that it is joined with may lie farther."""
    size = millis(pipeline.window.size)
    farther = 0 if first else millis(pipeline.stretch)
    return Span(before=farther, after=size + farther)


def events_of(windows: Range, pipeline: Pipeline, *, first: bool) -> Range:
    """The event times that windows starting in a range are made of (sessions: the least of it)."""
    around = span(pipeline, first=first)
    return windows[0] - around.before, windows[1] + around.after


def event_ranges(pipeline: Pipeline, windows: Iterable[Range]) -> list[list[Range]]:
    """Per topic, the event times that windows starting in the ranges are made of, in whole cells of the grid."""
    step, wanted = millis(pipeline.window.step), list(windows)

    def cells(one: Range, first: bool) -> Range:
        start, end = events_of(one, pipeline, first=first)
        return floor(start, step), ceil(end, step)

    return [merge(cells(one, at == 0) for one in wanted) for at, _ in enumerate(pipeline.reads)]


def windows_of(event: Range, pipeline: Pipeline, *, first: bool) -> Range:
    """The starts of the windows that events of a range of times are part of, on the grid."""
    step, around = millis(pipeline.window.step), span(pipeline, first=first)
    return floor(event[0] - around.after, step) + step, floor(event[1] - 1 + around.before, step) + step
