"""Ground truth: every record that the broker acknowledged, once, with its partition, offset and class.

One CSV per topic, below <home>/truth, appended in the order of delivery.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tally.base.errors import TallyError
from tally.demo.events import PAYMENTS, RIDES

FIELDS = {
    RIDES: ("vendor_id", "pickup_zone", "cab_id", "total_amount"),
    PAYMENTS: ("ride_id", "payment_type", "amount"),
}
HEAD = ("id", "partition", "offset", "class", "event_time_ms")
# Lines held back between writes: enough to make a write cheap, and what a kill -9 can lose.
BUFFERED = 20_000


class Sent(NamedTuple):
    """One acknowledged record; `fields` are the topic's own columns as text."""

    id: int
    partition: int
    offset: int
    kind: str
    event_time_ms: int | None
    fields: dict[str, str]


def read_truth(path: Path | str) -> Iterator[Sent]:
    """The records of one truth file in the order of delivery; a half-written last line is left out."""
    if not Path(path).is_file():
        raise TallyError(f"no truth file at {path}", cure="tally produce rides writes <home>/truth/<topic>.csv")
    with open(path, newline="", encoding="utf-8") as file:
        lines = (line for line in file if line.endswith("\n"))
        rows = csv.reader(lines)
        names = next(rows, list(HEAD))[len(HEAD) :]
        for row in rows:
            at = int(row[4]) if row[4] else None
            fields = dict(zip(names, row[5:], strict=True))
            yield Sent(int(row[0]), int(row[1]), int(row[2]), row[3], at, fields)


class TruthFile:
    """Appends to one topic's truth; lines are buffered until `flush` or `close`."""

    def __init__(self, folder: Path, topic: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{topic}.csv"
        self._file = open(self.path, "ab")  # noqa: SIM115 - closed by close()
        _cut_torn_line(self.path)
        if not self.path.stat().st_size:
            self._file.write((",".join(HEAD + FIELDS[topic]) + "\n").encode())
        self.lines: list[str] = []

    def flush(self) -> None:
        """Everything added so far is in the file."""
        self._file.write("".join(self.lines).encode())
        self._file.flush()
        self.lines.clear()

    def close(self) -> None:
        self.flush()
        self._file.close()


def _cut_torn_line(path: Path) -> None:
    """Drop what a killed writer left of its last line."""
    with open(path, "rb+") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 4096))
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
