"""Replays a user's CSV in the TLC's yellow-taxi columns: ride ids are line numbers, and unusable lines are named."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tally.base.duration import to_millis
from tally.base.errors import TallyError
from tally.demo.events import GOOD, PAYMENTS, RIDES, Pending, Record
from tally.demo.rides import FIRST_PAYMENT

# The TLC's codes; a voided trip (6) and "no charge" (3) pay nothing.
PAYMENT_TYPES = {"0": "app", "1": "card", "2": "cash", "4": "dispute", "5": "unknown"}
# Unusable lines that are kept to be shown; all are counted.
SHOWN = 10


class UnusableLine(Exception):
    """Why a line is no ride: the column and what is wrong with it."""


@dataclass(kw_only=True)
class TlcRides:
    """The rides of a CSV in its own order, one every 1/rate seconds from `start_ms`, their event times as they stand.

    Times without a zone are UTC. `move_to_ms` moves all event times so that the first pickup is then. The ride id is
    `first_id` - 1 + line number, so in a fresh home it is the line number. A ride with a payment type is paid at its
    dropoff; the payment follows once the replay's pickups have come that far.
    """

    path: Path
    rate: float
    start_ms: int
    first_id: int = 1
    count: int | None = None
    until_ms: int | None = None
    payments: bool = True
    strict: bool = False
    move_to_ms: int | None = None
    unusable: int = 0
    shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next_id = self.first_id
        self._unpaid: Pending[tuple[int, dict[str, Any]]] = Pending()
        self._shift = None if self.move_to_ms is not None else 0

    def __iter__(self) -> Iterator[Record]:
        due = self.start_ms
        for number, (line, row) in enumerate(self._usable()):
            due = self.start_ms + int(number * 1000 / self.rate)
            if number == self.count or (self.until_ms is not None and due >= self.until_ms):
                break
            yield from self._paid_by(row["pickup"], due)
            self.next_id = self.first_id + line
            yield self._ride(self.next_id - 1, row, due)
            if self.payments and row["payment_type"]:
                self._unpaid.add(row["dropoff"], (self.next_id - 1, row))
        for _, (ride_id, row) in self._unpaid.take_all():
            yield _payment(ride_id, row, due)

    def _paid_by(self, at: int, due: int) -> Iterator[Record]:
        while (entry := self._unpaid.pop(at)) is not None:
            _, (ride_id, row) = entry
            yield _payment(ride_id, row, due)

    def _ride(self, ride_id: int, row: dict[str, Any], due: int) -> Record:
        names = ("cab_id", "vendor_id", "pickup", "dropoff", "pickup_zone", "dropoff_zone", "passengers")
        amounts = ("distance", "fare", "tip", "total_amount")
        value = json.dumps({"ride_id": ride_id} | {name: row[name] for name in names + amounts}, separators=(",", ":"))
        cab = "" if row["cab_id"] is None else row["cab_id"]
        fields = f"{row['vendor_id']},{row['pickup_zone']},{cab},{row['total_amount']}"
        return Record(due, RIDES, str(ride_id), str(ride_id), value, GOOD, row["pickup"], fields)

    def _usable(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for line, cells in _lines(self.path):
            try:
                row = {name: read(cells) for name, read in COLUMNS.items()}
            except UnusableLine as error:
                self._refuse(line, str(error))
                continue
            if self._shift is None:
                self._shift = (self.move_to_ms or 0) - row["pickup"]
            row["pickup"], row["dropoff"] = row["pickup"] + self._shift, row["dropoff"] + self._shift
            yield line, row

    def _refuse(self, line: int, why: str) -> None:
        where = f"{self.path}:{line}"
        if self.strict:
            raise TallyError(why, where=where, cure="correct the line, or leave out --strict to go on without it")
        self.unusable += 1
        if len(self.shown) < SHOWN:
            self.shown.append(f"{where}: {why}")


def _payment(ride_id: int, row: dict[str, Any], due: int) -> Record:
    payment_id, kind, amount, at = FIRST_PAYMENT + ride_id, row["payment_type"], row["total_amount"], row["dropoff"]
    value = {"payment_id": payment_id, "ride_id": ride_id, "payment_type": kind, "amount": amount, "paid_at": at}
    text = json.dumps(value, separators=(",", ":"))
    return Record(due, PAYMENTS, str(payment_id), str(ride_id), text, GOOD, at, f"{ride_id},{kind},{amount}")


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by lower-case column name; a file that is no such CSV is refused."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            head = [name.strip().lower() for name in next(rows, [])]
            missing = [name for name in NEEDED if name.lower() not in head]
            if missing:
                raise TallyError(
                    f"no column {', '.join(missing)}", where=f"{path}:1", cure="use the TLC's yellow-taxi column names"
                )
            for cells in rows:
                if cells:
                    yield rows.line_num, dict(zip(head, (cell.strip() for cell in cells), strict=False))
    except OSError as error:
        raise TallyError(f"cannot read {path}: {error.strerror}", field="--csv", cure="give a readable file") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise TallyError(f"{path} is no CSV in UTF-8: {error}", field="--csv", cure="give a CSV file") from None


Read = Callable[[dict[str, str]], Any]


def _number(column: str, *, whole: bool, needed: bool = True) -> Read:
    def read(cells: dict[str, str]) -> int | float | None:
        text = cells.get(column.lower(), "")
        if not text and not needed:
            return None
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or (whole and not number.is_integer()):
            raise UnusableLine(f"{column} is {text!r}, not a {'whole ' if whole else ''}number")
        return int(number) if whole else number

    return read


def _time(column: str) -> Read:
    def read(cells: dict[str, str]) -> int:
        text = cells.get(column.lower(), "")
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UnusableLine(f"{column} is {text!r}, not a time like 2024-01-31 23:59:59") from None
        return to_millis(moment if moment.tzinfo else moment.replace(tzinfo=UTC))

    return read


COLUMNS: dict[str, Read] = {
    "vendor_id": _number("VendorID", whole=True),
    "pickup": _time("tpep_pickup_datetime"),
    "dropoff": _time("tpep_dropoff_datetime"),
    "pickup_zone": _number("PULocationID", whole=True),
    "dropoff_zone": _number("DOLocationID", whole=True),
    "distance": _number("trip_distance", whole=False),
    "fare": _number("fare_amount", whole=False),
    "total_amount": _number("total_amount", whole=False),
    "tip": _number("tip_amount", whole=False, needed=False),
    "passengers": _number("passenger_count", whole=True, needed=False),
    "cab_id": _number("cab_id", whole=True, needed=False),
    "payment_type": lambda cells: PAYMENT_TYPES.get(cells.get("payment_type", "").removesuffix(".0")),
}
NEEDED = (
    "VendorID",
    "tpep_pickup_datetime",
    "tpep_dropoff_datetime",
    "PULocationID",
    "DOLocationID",
    "trip_distance",
    "fare_amount",
    "total_amount",
)
