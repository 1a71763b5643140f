"""Rows of archive and quarantine that are not what the broker gave."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from faults.planted.layers import Touch, doubled, gone, set_to
from faults.planted.plant import Harm
from faults.planted.stage import Stage
from faults.planted.story import DECLARED, FLUSHED, MINUTE, T0, TIME, Sent
from faults.planted.tables import Row, Rows, edit, edit_in_place, newest, quiet, rows_of

Choose = Callable[[Stage, random.Random], Sent]


def any_event(stage: Stage, rng: random.Random, which: str = "orders") -> Sent:
    """A valid record of a quiet window, of which no other copy was sent: it counts."""
    place = quiet(stage, rng)
    return rng.choice(events_near(stage, place[0], place[1], which))


def events_near(stage: Stage, start: float, end: float, which: str) -> list[Sent]:
    taken = [one for one in stage.post.sent[: stage.base] if one.topic == which and DECLARED.takes(one) and one.body]
    ids = [one.body["id"] for one in taken if one.body]
    slack = 3 * MINUTE if which == "payments" else 0
    found = [
        one for one in taken
        if one.body and start <= one.body[TIME[which]] < end + slack and ids.count(one.body["id"]) == 1
    ]  # fmt: skip
    return found or [one for one in taken if one.body and T0 + 12 * MINUTE < one.body[TIME[which]] < FLUSHED]


def a_payment(stage: Stage, rng: random.Random) -> Sent:
    return any_event(stage, rng, "payments")


def late_event(stage: Stage, rng: random.Random) -> Sent:
    """A valid record that the stream dropped: the batch alone counts it."""
    place = quiet(stage, rng, agreed=False)
    streamed = newest(rows_of(stage.table("speed"))).get(place, {"n": 0})
    found = events_near(stage, place[0], place[1], "orders")
    late = [one for one in found if one.body and one.broker_time - one.body["at"] > 4 * MINUTE]
    assert streamed is not None
    return rng.choice(late or found)


def copy_of(at: int) -> Choose:
    """The first or the second copy of an id that was sent twice, with different times: the first one counts."""

    def choose(stage: Stage, rng: random.Random) -> Sent:
        by_id: dict[int, list[Sent]] = {}
        for one in stage.post.sent[: stage.base]:
            if one.topic == "orders" and DECLARED.takes(one) and one.body:
                by_id.setdefault(one.body["id"], []).append(one)
        twice = [
            sorted(same, key=lambda one: (one.broker_time, one.partition, one.offset))
            for same in by_id.values()
            if len({one.body["at"] for one in same if one.body}) == len(same) == 2
        ]
        return rng.choice(twice)[at]

    return choose


def is_record(row: Row, one: Sent) -> bool:
    return (row["_partition"], row["_offset"]) == (one.partition, one.offset)


def in_archive(touch: Touch, choose: Choose = any_event, *, silently: bool = False) -> Harm:
    """Touch the row of one valid record."""

    def harm(stage: Stage, rng: random.Random) -> None:
        one = choose(stage, rng)
        change = touching(touch, one)
        (edit_in_place if silently else edit)(stage.table("archive", one.topic), change)

    return harm


def touching(touch: Touch, one: Sent) -> Callable[[Rows], Rows]:
    return lambda rows: [new for row in rows for new in (touch(row) if is_record(row, one) else [row])]


def in_quarantine(touch: Touch) -> Harm:
    """Touch the row of one refused record."""

    def harm(stage: Stage, rng: random.Random) -> None:
        path = stage.table("quarantine")
        victim = rng.randrange(len(rows_of(path)))
        edit(path, lambda rows: [new for at, row in enumerate(rows) for new in (touch(row) if at == victim else [row])])

    return harm


def an_hour_later(row: Row) -> list[Row]:
    return [{**row, "at": row["at"] + timedelta(hours=1)}]


def other_bytes(row: Row) -> list[Row]:
    return [{**row, "_value": row["_value"].replace(b'"amount"', b'"amoumt"')}]


def older(row: Row) -> list[Row]:
    """The broker is said to have had it a minute earlier."""
    return [{**row, "_broker_time": row["_broker_time"] - timedelta(minutes=1)}]


def much_later(row: Row) -> list[Row]:
    """The broker is said to have had it an hour later: after its copy."""
    return [{**row, "_broker_time": row["_broker_time"] + timedelta(hours=1)}]


AMOUNT = set_to(amount=7777.0, cents=777700)
INGEST = set_to(_ingest=77)
EARLIER_INGEST = set_to(_ingest=-1)
OTHER_REASON = set_to(_reason="not_json at all")


def compensated(stage: Stage, rng: random.Random) -> None:
    """One event lost and another doubled: every count stays."""
    one, other = any_event(stage, rng), any_event(stage, rng)
    while other is one:
        other = any_event(stage, rng)
    edit(stage.table("archive"), lambda rows: touching(doubled, other)(touching(gone, one)(rows)))


def two_exchanged(stage: Stage, rng: random.Random) -> None:
    """Two events of one partition change their amounts: counts and sums stay."""
    one = any_event(stage, rng)
    rows = {(row["_partition"], row["_offset"]): row for row in rows_of(stage.table("archive"))}
    mine = rows[one.partition, one.offset]
    others = [row for row in rows.values() if row["_partition"] == one.partition and row["amount"] != mine["amount"]]
    other = rng.choice(others)
    values = {id(r): {m: s[m] for m in ("amount", "cents", "price")} for r, s in ((mine, other), (other, mine))}

    def change(found: Rows) -> Rows:
        def place(row: Row) -> tuple[int, int]:
            return row["_partition"], row["_offset"]

        given = {place(mine): values[id(mine)], place(other): values[id(other)]}
        return [{**row, **given.get(place(row), {})} for row in found]

    edit(stage.table("archive"), change)


def a_file(stage: Stage, rng: random.Random) -> None:
    """One file of the archive is removed from the disk, and its log goes on naming it."""
    file = rng.choice(sorted(DeltaTable(stage.table("archive")).file_uris()))
    Path(file.removeprefix("file://")).unlink()


def a_file_and_its_entry(stage: Stage, rng: random.Random) -> None:
    """The archive as it was before its last ingest but for the words: all rows of one partition are deleted."""
    DeltaTable(stage.table("archive")).delete("_partition = 1")


def a_stranger(stage: Stage, rng: random.Random) -> None:
    """An event that nobody sent, at an offset that is a gap: the transaction's own marker."""
    one = any_event(stage, rng)
    taken = {(s.partition, s.offset) for s in stage.post.sent}
    gap = next(o for o in range(stage.base) if (one.partition, o) not in taken)

    def change(rows: Rows) -> Rows:
        mine = next(row for row in rows if is_record(row, one))
        return [*rows, {**mine, "_offset": gap, "id": 99_999}]

    edit(stage.table("archive"), change)


def aborted(stage: Stage, rng: random.Random) -> None:
    """A record of the aborted transaction, put into the archive as if it had been committed."""
    one = rng.choice([s for s in stage.post.sent if s.topic == "orders" and not s.committed and s.body])
    body: dict[str, Any] = one.body or {}

    def change(rows: Rows) -> Rows:
        near = next(row for row in rows if row["_partition"] == one.partition)
        return [*rows, {**near, "_offset": one.offset, "id": body["id"] + 50_000, "amount": body["amount"]}]

    edit(stage.table("archive"), change)


def refused_is_archived(stage: Stage, rng: random.Random) -> None:
    """A quarantined record is moved into the archive."""
    quarantine = stage.table("quarantine")
    victim = rng.choice(rows_of(quarantine))
    edit(quarantine, lambda rows: [row for row in rows if not same_place(row, victim)])
    place = {name: victim[name] for name in ("_partition", "_offset", "_broker_time", "_ingest")}

    def change(rows: Rows) -> Rows:
        return [*rows, {**rng.choice(rows), **place, "id": 88_888}]

    edit(stage.table("archive"), change)


def archived_is_refused(stage: Stage, rng: random.Random) -> None:
    """A valid record is moved into the quarantine."""
    one = any_event(stage, rng)
    mine = next(row for row in rows_of(stage.table("archive")) if is_record(row, one))
    edit(stage.table("archive"), touching(gone, one))

    def change(rows: Rows) -> Rows:
        place = {name: mine[name] for name in ("_partition", "_offset", "_broker_time", "_ingest")}
        return [*rows, {**rows[0], **place, "_raw": mine["_value"]}]

    edit(stage.table("quarantine"), change)


def bytes_and_column(stage: Stage, rng: random.Random) -> None:
    """The bytes of a record, which count once a contract changes; and that it does."""
    from faults.planted.contracts import edited

    in_archive(other_bytes)(stage, rng)
    edited("at TIMESTAMP", "note STRING, at TIMESTAMP")(stage, rng)


def same_place(row: Row, other: Row) -> bool:
    return (row["_partition"], row["_offset"]) == (other["_partition"], other["_offset"])
