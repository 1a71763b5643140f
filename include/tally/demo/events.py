"""What the generator hands on: a record with the time to send it, its class, and its line of ground truth."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

RIDES, PAYMENTS = "rides", "payments"
GOOD, LATE, DUPLICATE = "good", "late", "duplicate"
NOT_JSON, WRONG_TYPE, NO_TIME, FUTURE, TIME_UNIT = BAD = (
    "bad:not_json",
    "bad:wrong_type",
    "bad:no_time",
    "bad:future",
    "bad:time_unit",
)
CLASSES = (GOOD, LATE, DUPLICATE, *BAD)
# 2036-01-01 and 2037-01-01, the year of the broken clocks.
BROKEN_CLOCK = (2_082_758_400_000, 2_114_380_800_000)


class Record(NamedTuple):
    """One message; `due` is when to send it (epoch ms), `event` the event time on the wire, "" where there is none."""

    due: int
    topic: str
    id: str
    key: str
    value: str
    kind: str
    event: int | str
    fields: str


@dataclass(frozen=True, kw_only=True)
class Disorder:
    """The shares of all records that are late, duplicate or bad, and how far event times stray."""

    late: float = 0.01
    duplicates: float = 0.005
    bad: float = 0.002
    stray_ms: int = 30_000
    late_from_ms: int = 11 * 60_000
    late_to_ms: int = 60 * 60_000
    repeat_within_ms: int = 60_000

    @property
    def total(self) -> float:
        return self.late + self.duplicates + self.bad

    def draw(self, u: float) -> str:
        """The class of a record, for a number drawn evenly from [0, 1)."""
        if u >= self.total:
            return GOOD
        if u < self.bad:
            return BAD[int(u / self.bad * len(BAD))]
        return LATE if u < self.bad + self.late else DUPLICATE


def spoil(value: str, kind: str, time: str, at: int, number: str, u: float) -> tuple[str, int | str]:
    """The value as class `kind` breaks it, and the event time then on the wire; `u` in [0, 1) picks the details."""
    if kind == NOT_JSON:
        return value[: 1 + int(u * (len(value) - 1))], at
    if kind == WRONG_TYPE:
        head, _, rest = value.partition(f'"{number}":')
        _, mark, tail = rest.partition("," if "," in rest else "}")
        return f'{head}"{number}":"twelve"{mark}{tail}', at
    clock = f'"{time}":{at}'
    if kind == NO_TIME:
        return value.replace(f"{clock},", "", 1) if f"{clock}," in value else value.replace(f",{clock}", "", 1), ""
    first, last = BROKEN_CLOCK
    wrong = at // 1000 if kind == TIME_UNIT else first + int(u * (last - first))
    return value.replace(clock, f'"{time}":{wrong}', 1), wrong


Entry = TypeVar("Entry")


class Pending(Generic[Entry]):
    """What is to be sent later, given back in order of its due time.

    Due times are kept by the second and only the current second is sorted: a million payments wait at 0.2 us each.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, list[tuple[int, int, Entry]]] = {}
        self._near: list[tuple[int, int, Entry]] = []
        self._clock = 0  # seconds before it have been moved to _near
        self._count = 0

    def add(self, due: int, entry: Entry) -> None:
        """Keep an entry until `due`; entries of one due time come back in the order of adding."""
        self._count += 1
        second = due // 1000
        if second < self._clock:
            heapq.heappush(self._near, (due, self._count, entry))
        elif second in self._seconds:
            self._seconds[second].append((due, self._count, entry))
        else:
            self._seconds[second] = [(due, self._count, entry)]

    def pop(self, now: int) -> tuple[int, Entry] | None:
        """Take out the entry that is due first, with its due time; None when nothing is due at `now`."""
        if now >= self._clock * 1000:
            self._advance(now // 1000 + 1)
        if self._near and self._near[0][0] <= now:
            due, _, entry = heapq.heappop(self._near)
            return due, entry
        return None

    def _advance(self, clock: int) -> None:
        """Sort in what is due before `clock`, in seconds."""
        span = range(self._clock, clock)
        for second in span if len(span) < len(self._seconds) else [s for s in self._seconds if s < clock]:
            for entry in self._seconds.pop(second, ()):
                heapq.heappush(self._near, entry)
        self._clock = clock

    def take_all(self) -> list[tuple[int, Entry]]:
        """Take out everything, in order of due time."""
        self._near += [entry for batch in self._seconds.values() for entry in batch]
        left, self._near, self._seconds = sorted(self._near), [], {}
        return [(due, entry) for due, _, entry in left]
