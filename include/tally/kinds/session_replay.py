"""What the stream made of one key's events in session windows: micro-batch by micro-batch, as Spark does it.

An event opens [t, t + gap) and merges with open sessions that it meets. After each batch the sessions that end at or
before the watermark are emitted and forgotten; an event that is not late itself may still stand beside one of those,
and then begins a session of its own: it is split off.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Session:
    """A session with the places (indices) of its events."""

    start: int
    end: int
    events: list[int] = field(default_factory=list)

    def meets(self, other: Session) -> bool:
        return self.start <= other.end and other.start <= self.end


@dataclass(frozen=True, kw_only=True)
class Walked:
    """Where one event ended up: its session as emitted (None: still open at the end), and whether it was split off."""

    session: tuple[int, int] | None
    split: bool


def walk(times: Sequence[int], batches: Sequence[int], watermarks: Sequence[int], gap: int) -> list[Walked]:
    """Follow one key's accepted events; `batches` are indices into `watermarks`, which never fall."""
    open_: list[Session] = []
    emitted: list[Session] = []
    split: set[int] = set()
    order = sorted(range(len(times)), key=lambda i: (batches[i], times[i]))
    at = 0
    while at < len(order):
        batch = batches[order[at]]
        emit(open_, emitted, watermarks, batch - 1)
        while at < len(order) and batches[order[at]] == batch:
            event = order[at]
            new = Session(times[event], times[event] + gap, [event])
            if any(new.meets(done) for done in emitted):
                split.add(event)
            open_ = merged(open_, new)
            at += 1
        emit(open_, emitted, watermarks, batch)
    emit(open_, emitted, watermarks, len(watermarks) - 1)
    found = {event: (s.start, s.end) for s in emitted for event in s.events}
    return [Walked(session=found.get(i), split=i in split) for i in range(len(times))]


def merged(sessions: list[Session], new: Session) -> list[Session]:
    met = [session for session in sessions if session.meets(new)]
    for session in met:
        new = Session(min(new.start, session.start), max(new.end, session.end), new.events + session.events)
    return [session for session in sessions if session not in met] + [new]


def emit(open_: list[Session], emitted: list[Session], watermarks: Sequence[int], upto: int) -> None:
    """Move to `emitted` the sessions whose end some watermark up to that batch has reached."""
    if upto < 0:
        return
    for session in list(open_):
        if bisect_left(watermarks, session.end) <= upto:
            open_.remove(session)
            emitted.append(session)
