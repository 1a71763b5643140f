"""Rows of the stream's and of the batch's table that are not what the layer wrote."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from faults.planted.plant import Harm
from faults.planted.stage import Stage
from faults.planted.tables import Row, Rows, edit, edit_in_place, lies_at, newest, quiet, rows_of
from faults.planted.verdict import Place

Touch = Callable[[Row], list[Row]]
MICRO = timedelta(microseconds=1)
NOBODYS = {"shop": 99, "method": "gold", "id": 99_999}


def more(**by: Any) -> Touch:
    """Measures raised by so much."""
    return lambda row: [{**row, **{name: row[name] + value for name, value in by.items()}}]


def set_to(**to: Any) -> Touch:
    return lambda row: [{**row, **to}]


def last_bit(row: Row) -> list[Row]:
    """The next larger number: in a sum that would be rounding."""
    return [{**row, "total": math.nextafter(row["total"], math.inf)}]


def gone(row: Row) -> list[Row]:
    return []


def doubled(row: Row) -> list[Row]:
    return [row, dict(row)]


def moved(row: Row) -> list[Row]:
    """A microsecond later."""
    return [{**row, "window_start": row["window_start"] + MICRO}]


def ends_later(row: Row) -> list[Row]:
    return [{**row, "window_end": row["window_end"] + MICRO}]


def extra(row: Row) -> list[Row]:
    """A row of a key that nobody sent."""
    name, nobodys = next((name, key) for name, key in NOBODYS.items() if name in row)
    return [row, {**row, name: nobodys}]


ONE_EVENT = more(n=1, total=25.0, cents=2500, price=Decimal("25.00"))
A_CENT = more(total=0.01)


def only(place: Place, touch: Touch, rows: Rows) -> Rows:
    """Touch the rows that are read at a place, and no other."""
    now = newest([row for row in rows if lies_at(row, place)]).get(place)
    return [new for row in rows for new in (touch(row) if row is now else [row])]


def in_layer(layer: str, touch: Touch, *, agreed: bool = True, silently: bool = False) -> Harm:
    """Touch one row of a layer's table, by a commit or, silently, in its file."""

    def harm(stage: Stage, rng: random.Random) -> None:
        place = quiet(stage, rng, agreed=agreed)
        path = stage.table(layer)
        if silently:
            edit_in_place(path, lambda rows: only(place, touch, rows))
        else:
            edit(path, lambda rows: only(place, touch, rows))

    return harm


def in_both(touch: Touch) -> Harm:
    """The same in both layers."""

    def harm(stage: Stage, rng: random.Random) -> None:
        place = quiet(stage, rng)
        for layer in ("speed", "batch"):
            edit(stage.table(layer), lambda rows: only(place, touch, rows))

    return harm


def exchanged(stage: Stage, rng: random.Random) -> None:
    """Two rows of the batch change their values: every total stays."""
    path = stage.table("batch")
    place = quiet(stage, rng)
    rows = newest(rows_of(path))
    other = rng.choice([p for p, row in sorted(rows.items(), key=str) if row["total"] != rows[place]["total"]])
    values = {p: {m: rows[q][m] for m in ("n", "total", "cents", "price")} for p, q in ((place, other), (other, place))}
    edit(path, lambda rows: only(other, set_to(**values[other]), only(place, set_to(**values[place]), rows)))


def put_back(layer: str) -> Harm:
    """The table as it was before its newest commit that has rows, as somebody puts back a backup of it."""

    def harm(stage: Stage, rng: random.Random) -> None:
        from deltalake import DeltaTable

        path = stage.table(layer)
        table, rows = DeltaTable(path), len(rows_of(path))
        wanted = table.version() - 1
        while DeltaTable(path, version=wanted).to_pyarrow_table().num_rows == rows:
            wanted -= 1
        table.restore(wanted)

    return harm
