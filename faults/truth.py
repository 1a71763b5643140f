"""What was sent, by the producer's own word, and what both layers must make of it, in plain Python. Milliseconds.

It shares no code with the engine and none with the tests' oracle. Amounts are quarters, so that sums are exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SECOND, MINUTE = 1000, 60_000
LATENESS = 2 * MINUTE

Place = tuple[str, int, int]  # topic, partition, offset
Window = tuple[int, int]
Key = tuple[int, int, int]  # start, end, shop
Rows = dict[Key, tuple[int, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One record that the broker acknowledged; `refused` is the reason with which Tally must quarantine it, or None."""

    place: Place
    broker_time: int
    kind: str
    refused: str | None = None
    time: int = 0
    id: int = 0
    shop: int = 0
    amount: float = 0.0

    @property
    def valid(self) -> bool:
        return self.refused is None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a pipeline of the campaign's catalogue computes."""

    topic: str
    size: int = MINUTE
    slide: int = MINUTE
    unique: bool = False

    def windows(self, time: int) -> list[Window]:
        first = time - time % self.slide
        starts = range(first - self.size + self.slide, first + 1, self.slide)
        return [(start, start + self.size) for start in starts]


SHAPES = {
    "shop_minutes": Shape(topic="faults.orders", unique=True),
    "meter_minutes": Shape(topic="faults.readings"),
    "shop_spans": Shape(topic="faults.orders", size=3 * MINUTE, unique=True),
}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch as its Delta commit tells it: half-open ranges by partition, and the watermarks in force."""

    generation: int
    batch: int
    ranges: dict[int, tuple[int, int]]
    late_watermark: int
    watermark: int
    version: int = 0
    shared: bool = (
        False  # whether pipelines of its topic share it: a watermark of each partition, copies by their times
    )

    def holds(self, place: Place) -> bool:
        start, end = self.ranges.get(place[1], (0, 0))
        return start <= place[2] < end


@dataclass
class Walked:
    """What the stream must have made of the events, micro-batch by micro-batch."""

    rows: Rows = field(default_factory=dict)
    accepted: set[Place] = field(default_factory=set)
    late: set[Place] = field(default_factory=set)
    watermarks: list[int] = field(default_factory=list)


def valid(sent: Iterable[Sent], topic: str) -> list[Sent]:
    return [one for one in sent if one.valid and one.place[0] == topic]


def copies(events: Sequence[Sent], shape: Shape) -> set[Place]:
    """The places of second copies: an id that came before, its time not further off than the lateness."""
    if not shape.unique:
        return set()
    by_id: dict[int, list[Sent]] = defaultdict(list)
    for event in events:
        by_id[event.id].append(event)
    again: set[Place] = set()
    for same in (group for group in by_id.values() if len(group) > 1):
        for event in same:
            near = [one for one in same if abs(one.time - event.time) <= LATENESS]
            if min(near, key=lambda one: (one.broker_time, one.place)) is not event:
                again.add(event.place)
    return again


def windows(events: Sequence[Sent], shape: Shape) -> Rows:
    """Every row that the sealed table must have: each valid event once."""
    again = copies(events, shape)
    return total((w, e) for e in events if e.place not in again for w in shape.windows(e.time))


def total(items: Iterable[tuple[Window, Sent]]) -> Rows:
    found: dict[Key, tuple[int, float]] = {}
    for (start, end), event in items:
        count, amount = found.get((start, end, event.shop), (0, 0.0))
        found[start, end, event.shop] = count + 1, amount + event.amount
    return found


def by_batch(events: Sequence[Sent], batches: Sequence[Batch]) -> list[list[Sent]]:
    """The events of each micro-batch; one that two of them claim is in both."""
    by_place = {event.place[1:]: event for event in events}
    return [
        [by_place[p, o] for p, (a, b) in sorted(batch.ranges.items()) for o in range(a, b) if (p, o) in by_place]
        for batch in batches
    ]


def walk(events: Sequence[Sent], shape: Shape, batches: Sequence[Batch]) -> Walked:
    """What the stream must give, by its own rules or those of a stream that is shared."""
    return (walk_shared if any(batch.shared for batch in batches) else walk_own)(events, shape, batches)


def walk_shared(events: Sequence[Sent], shape: Shape, batches: Sequence[Batch]) -> Walked:
    """The first copy of an id that is read is taken; a watermark is where the one before it ended, or further.

    Which partitions were silent, nobody outside can say: so a watermark is checked to be no further than all events.
    """
    out, before, newest = Walked(), 0, 0
    seen: dict[int, list[int]] = defaultdict(list)
    placed: list[tuple[Window, Sent]] = []
    for batch, taken in zip(batches, by_batch(events, batches), strict=True):
        for event in taken:
            windows = shape.windows(event.time)
            alive = [window for window in windows if window[1] > before and (event.time > before or not shape.unique)]
            if len(alive) < len(windows):
                out.late.add(event.place)
            copy = shape.unique and any(abs(time - event.time) <= LATENESS for time in seen[event.id])
            if alive:
                seen[event.id].append(event.time)
            if alive and not copy:
                out.accepted.add(event.place)
                placed += [(window, event) for window in alive]
        newest = max([newest, *(event.time for event in taken)])
        due = min(max(before, batch.watermark), max(before, newest - LATENESS))
        out.watermarks.append(due if batch.late_watermark == before else -1)
        before = due
    out.rows = total(placed)
    return out


def walk_own(events: Sequence[Sent], shape: Shape, batches: Sequence[Batch]) -> Walked:
    """The stream by Spark's documented rule: what lies at or behind the watermark of the micro-batch before is late."""
    out, mark, before = Walked(), 0, 0
    seen: dict[int, int] = {}
    placed: list[tuple[Window, Sent]] = []
    for taken in by_batch(events, batches):
        out.watermarks.append(mark)
        for event in taken:
            alive = shape.windows(event.time)
            if not shape.unique:
                alive = [window for window in alive if window[1] > before]
            elif event.time <= before:
                alive = []
            if len(alive) < len(shape.windows(event.time)):
                out.late.add(event.place)
            if not alive or (shape.unique and event.id in seen):
                continue
            if shape.unique:
                seen[event.id] = event.time + LATENESS
            out.accepted.add(event.place)
            placed += [(window, event) for window in alive]
        seen = {id_: gone for id_, gone in seen.items() if gone > mark}
        newest = max((event.time for event in taken), default=0)
        before, mark = mark, max(mark, newest - LATENESS)
    out.rows = total(placed)
    return out
