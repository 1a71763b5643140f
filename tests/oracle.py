"""A slow and obvious account of both layers in plain Python, to hold the engine against. All times in milliseconds.

It shares no code with the engine. The batch half counts every event that is no duplicate; the stream half walks the
micro-batches by the rule that Spark documents: what lies at or behind the watermark of the micro-batch before is late.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Window = tuple[int, int]
Rows = dict[tuple[int, int, Any], tuple[int, float]]


@dataclass(frozen=True)
class Event:
    """A valid record: where it lies, when the broker took it, and what it says."""

    partition: int
    offset: int
    broker_time: int
    time: int
    id: int
    key: Any
    amount: float
    ref: int = 0  # what a join matches on

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


@dataclass(frozen=True)
class Shape:
    """What a pipeline computes: count and sum of amounts per window and key; lateness is per topic."""

    kind: str
    size: int
    lateness: tuple[int, ...]
    slide: int = 0
    reach: int = 0
    unique: bool = False
    above: float | None = None  # events of a smaller amount, or of this one, are left out

    def row_of(self, event: Event) -> Any:
        """What names an event's row beside its window: its key, or, where rows are of single events, its id."""
        return event.id if self.kind == "events" else event.key

    def takes(self, event: Event) -> bool:
        return self.above is None or event.amount > self.above

    @property
    def rule(self) -> str:
        """What is compared with the watermark first: the event's own time, or the end of its window."""
        return "event" if self.unique or self.kind == "join" else "window"

    def windows(self, time: int) -> list[Window]:
        slide = self.slide or self.size
        first = time - time % slide
        starts = [first - i * slide for i in range(self.size // slide + 1)]
        return [(start, start + self.size) for start in starts if start <= time < start + self.size]


@dataclass(frozen=True)
class Batch:
    """One micro-batch's boundaries: per topic and partition [from, to); `fresh` where a driver began with it."""

    ranges: tuple[dict[int, tuple[int, int]], ...]
    fresh: bool = False

    def holds(self, topic: int, event: Event) -> bool:
        start, to = self.ranges[topic].get(event.partition, (0, 0))
        return start <= event.offset < to


def counted(events: Sequence[Event], shape: Shape, topic: int = 0) -> list[Event]:
    """What the batch counts: of each id's copies within the lateness, none that another one came before."""
    if not shape.unique:
        return list(events)

    def arrival(event: Event) -> tuple[int, int, int]:
        return event.broker_time, event.partition, event.offset

    copies: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        copies[event.id].append(event)

    def second(event: Event) -> bool:
        near = [e for e in copies[event.id] if abs(e.time - event.time) <= shape.lateness[topic]]
        return min(near, key=arrival) is not event

    return [event for event in events if not second(event)]


def batch_rows(shape: Shape, topics: Sequence[Sequence[Event]]) -> Rows:
    """Every row of the batch table."""
    taken = [counted(events, shape, at) for at, events in enumerate(topics)]
    return rows(shape, taken)


def rows(shape: Shape, topics: Sequence[Sequence[Event]]) -> Rows:
    if shape.kind == "session":
        return session_rows(topics[0], shape.size)
    if shape.kind == "join":
        return total(
            (w, right.key, right.amount) for left, right in pairs(shape, *topics) for w in shape.windows(left.time)
        )
    taken = [event for event in topics[0] if shape.takes(event)]
    return total((window, shape.row_of(event), event.amount) for event in taken for window in shape.windows(event.time))


def pairs(shape: Shape, left: Iterable[Event], right: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Each event with those of the other topic that refer to it and come less than `reach` after it."""
    by_ref = defaultdict(list)
    for event in right:
        by_ref[event.ref].append(event)
    return [(a, b) for a in left for b in by_ref[a.ref] if a.time <= b.time < a.time + shape.reach]


def total(items: Iterable[tuple[Window, Any, float]]) -> Rows:
    found: dict[tuple[int, int, Any], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for (start, end), key, amount in items:
        count, amounts = found[start, end, key]
        found[start, end, key] = count + 1, amounts + amount
    return dict(found)


def session_rows(events: Iterable[Event], gap: int) -> Rows:
    """Sessions end a gap after their last event; one that begins just where another ends goes on with it."""
    by_key = defaultdict(list)
    for event in events:
        by_key[event.key].append(event)
    found: Rows = {}
    for key, mine in by_key.items():
        mine.sort(key=lambda e: e.time)
        run = [mine[0]]
        for event in mine[1:]:
            if event.time > run[-1].time + gap:
                found[run[0].time, run[-1].time + gap, key] = len(run), sum(e.amount for e in run)
                run = []
            run.append(event)
        found[run[0].time, run[-1].time + gap, key] = len(run), sum(e.amount for e in run)
    return found


@dataclass
class Streamed:
    """What the stream must have put out: rows, the watermark that each micro-batch ran under, and each event's fate."""

    rows: Rows = field(default_factory=dict)
    watermarks: list[int] = field(default_factory=list)
    accepted: list[list[Event]] = field(default_factory=list)
    late: list[set[tuple[int, int]]] = field(default_factory=list)
    split: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Session:
    start: int
    end: int
    key: Any
    events: list[Event]

    def touches(self, other: Session) -> bool:
        return self.key == other.key and self.start <= other.end and other.start <= self.end


class Stream:
    """The stream's state between micro-batches."""

    def __init__(self, shape: Shape, topics: int) -> None:
        self.shape = shape
        self.seen: list[dict[int, int]] = [{} for _ in range(topics)]  # id -> when its state goes
        self.newest: list[int | None] = [None] * topics
        self.mark, self.before = 0, 0  # the watermark of this micro-batch, and of the one before
        self.placed: list[tuple[Window, Any, float]] = []
        self.open: list[Session] = []
        self.done: list[Session] = []
        self.out = Streamed(accepted=[[] for _ in range(topics)], late=[set() for _ in range(topics)])

    def take(self, topic: int, event: Event) -> None:
        """One event of a micro-batch: late, a second copy, or accepted."""
        shape, late = self.shape, self.out.late[topic]
        self.newest[topic] = max(event.time, self.newest[topic] or 0)
        if shape.rule == "event" and event.time <= self.before:
            late.add(event.place)
            return
        if shape.unique:
            if event.id in self.seen[topic]:
                return
            self.seen[topic][event.id] = event.time + shape.lateness[topic]
        if shape.kind in ("tumbling", "hopping", "events"):
            windows = shape.windows(event.time)
            alive = [window for window in windows if shape.rule == "event" or window[1] > self.before]
            if len(alive) < len(windows):
                late.add(event.place)
            self.placed += [(window, shape.row_of(event), event.amount) for window in alive if shape.takes(event)]
        elif shape.kind == "session":
            if event.time + shape.size <= self.before:
                late.add(event.place)
                return
            self.open = with_event(self.open, self.done, event, shape.size, self.out)
        self.out.accepted[topic].append(event)

    def end_batch(self) -> None:
        """Forget what the watermark has passed, and move the watermark: the least of the topics', never back."""
        self.seen = [{id_: gone for id_, gone in seen.items() if gone > self.mark} for seen in self.seen]
        self.done += [session for session in self.open if session.end <= self.mark]
        self.open = [session for session in self.open if session.end > self.mark]
        reached = [0 if n is None else n - late for n, late in zip(self.newest, self.shape.lateness, strict=True)]
        self.before, self.mark = self.mark, max(self.mark, min(reached))


def streamed(shape: Shape, topics: Sequence[Sequence[Event]], batches: Sequence[Batch]) -> Streamed:
    """Walk the micro-batches in order."""
    stream = Stream(shape, len(topics))
    out = stream.out
    for batch in batches:
        out.watermarks.append(stream.mark)
        if batch.fresh:  # a new driver remembers the watermark, but not what each topic had reached
            stream.newest = [None] * len(topics)
        for at, events in enumerate(topics):
            for event in sorted((e for e in events if batch.holds(at, e)), key=lambda e: e.place):
                stream.take(at, event)
        stream.end_batch()
    if shape.kind == "join":
        out.rows = rows(shape, out.accepted)
    elif shape.kind == "session":
        out.rows = {(s.start, s.end, s.key): (len(s.events), sum(e.amount for e in s.events)) for s in stream.done}
    else:
        out.rows = total(stream.placed)
    return out


def shared(
    shape: Shape, events: Sequence[Event], batches: Sequence[Batch], ends: Sequence[dict[int, int]], idle: int
) -> Streamed:
    """The same where a topic's pipelines share its stream: the slowest partition rules that is not silent.

    `ends` has what each partition held when a micro-batch was read. Of an id's copies within the lateness that are not
    late, the first one that is read is taken.
    """
    out = Streamed(accepted=[[]], late=[set()])
    newest: dict[int, tuple[int, int]] = {}  # of each partition: event time, broker time
    mark, begun, placed = 0, 0, []
    read_before: dict[int, list[int]] = defaultdict(list)  # id -> times
    for batch, held in zip(batches, ends, strict=True):
        out.watermarks.append(mark)
        mine = sorted((event for event in events if batch.holds(0, event)), key=lambda event: event.place)
        for event in mine:
            before = newest.get(event.partition, (0, 0))
            newest[event.partition] = max(before[0], event.time), max(before[1], event.broker_time)
            windows = shape.windows(event.time)
            alive = [window for window in windows if window[1] > mark and (event.time > mark or not shape.unique)]
            if len(alive) < len(windows):
                out.late[0].add(event.place)
            if shape.unique and alive:
                copy = any(abs(time - event.time) <= shape.lateness[0] for time in read_before[event.id])
                read_before[event.id].append(event.time)
                if copy:
                    continue
            if alive or not shape.unique:
                placed += [(window, event.key, event.amount) for window in alive]
                out.accepted[0].append(event)
        if mine and not begun:
            begun = min(event.broker_time for event in mine)
        if newest:
            now = max(broker for _, broker in newest.values())
            read = {partition: to for partition, (_, to) in batch.ranges[0].items()}
            heard = [
                newest.get(partition)
                for partition, end in held.items()
                if end > read.get(partition, 0) or now - newest.get(partition, (0, begun))[1] <= idle
            ]
            known = [one[0] for one in heard if one is not None]
            if len(known) == len(heard):
                mark = max(mark, min(known) - shape.lateness[0])
    out.rows = total(placed)
    return out


def with_event(open_: list[Session], done: list[Session], event: Event, gap: int, out: Streamed) -> list[Session]:
    """The open sessions of a key with one more event; beside one that is over it begins anew, and is split off."""
    new = Session(event.time, event.time + gap, event.key, [event])
    if any(new.touches(session) for session in done):
        out.split.add(event.place)
    met = [session for session in open_ if session.touches(new)]
    for session in met:
        new = Session(min(new.start, session.start), max(new.end, session.end), new.key, new.events + session.events)
    return [session for session in open_ if not any(session is m for m in met)] + [new]


def causes(shape: Shape, topics: Sequence[Sequence[Event]], out: Streamed) -> Counter[str]:
    """Events that one layer counts and the other does not, by cause, where a window that they may be in differs."""
    found: Counter[str] = Counter()
    differing = differing_slots(shape, batch_rows(shape, topics), out.rows)
    for at, events in enumerate(topics):
        taken = {e.place for e in counted(events, shape, at)}
        accepted = {e.place for e in out.accepted[at]}
        for event in filter(shape.takes, events):
            if shape.kind != "session" and not differing & slots_near(shape, at, event):
                continue
            if event.place in taken and event.place in out.late[at]:
                found["late"] += 1
            elif (event.place in taken) != (event.place in accepted):
                found["duplicate"] += 1
            elif event.place in taken and at == 0 and event.place in out.split:
                found["split"] += 1
    return +found


def differing_slots(shape: Shape, batch: Rows, stream: Rows) -> set[int]:
    return {place[0] for place in batch.keys() | stream.keys() if batch.get(place) != stream.get(place)}


def slots_near(shape: Shape, topic: int, event: Event) -> set[int]:
    """The starts of the windows that an event in the same cell of the grid may be part of, joined or not."""
    step = shape.slide or shape.size
    cell = event.time - event.time % step
    reach = shape.reach if topic else 0
    return {start for at in range(cell - reach, cell + step + reach, 1000) for start, _ in shape.windows(at)}
