"""Rows of the control store that are not what the product wrote: copies of commits, seals, and what it remembers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from faults.planted.plant import Harm, Still
from faults.planted.stage import Stage
from faults.planted.story import MINUTE
from faults.planted.tables import quiet

Change = Callable[[Any], Any]


def slot_of(stage: Stage, rng: random.Random) -> int:
    """The slot of a quiet window."""
    step = stage.shape.slide or stage.shape.size
    return int(quiet(stage, rng)[0] // step * step)


def seal(**to: Any) -> Harm:
    """Columns of the seal of one quiet window."""

    def harm(stage: Stage, rng: random.Random) -> Still:
        slot = slot_of(stage, rng)
        names = ", ".join(f"{name} = ?" for name in to)
        stage.control(f"UPDATE seals SET {names} WHERE slot_start = ?", *to.values(), slot)
        look = f"SELECT {', '.join(to)} FROM seals WHERE slot_start = ?"
        return lambda: stage.control(look, slot) == [tuple(to.values())]

    return harm


def seal_moved(stage: Stage, rng: random.Random) -> Still:
    """The slot of a seal ends a minute later than it does."""
    slot = slot_of(stage, rng)
    stage.control("UPDATE seals SET slot_end = slot_end + ? WHERE slot_start = ?", MINUTE, slot)
    end = stage.control("SELECT slot_end FROM seals WHERE slot_start = ?", slot)
    return lambda: stage.control("SELECT slot_end FROM seals WHERE slot_start = ?", slot) == end


def seal_shifted(stage: Stage, rng: random.Random) -> Still:
    """A seal stands for another slot than it was put on: one that was never judged."""
    slot = slot_of(stage, rng)
    other = slot + 600 * MINUTE
    stage.control(
        "UPDATE seals SET slot_start = ?, slot_end = slot_end + ? WHERE slot_start = ?", other, 600 * MINUTE, slot
    )
    return lambda: bool(stage.control("SELECT 1 FROM seals WHERE slot_start = ?", other))


def seal_gone(stage: Stage, rng: random.Random) -> Still:
    slot = slot_of(stage, rng)
    stage.control("DELETE FROM seals WHERE slot_start = ?", slot)
    return lambda: not stage.control("SELECT 1 FROM seals WHERE slot_start = ?", slot)


def partial_is_sealed(stage: Stage, rng: random.Random) -> Still:
    """Every window that the beginning cut into is said to be sealed."""
    assert stage.control("SELECT 1 FROM seals WHERE state = 'partial'")
    stage.control("UPDATE seals SET state = 'sealed' WHERE state = 'partial'")
    return lambda: not stage.control("SELECT 1 FROM seals WHERE state = 'partial'")


def sealed_unread(stage: Stage, rng: random.Random) -> Still:
    """A window that no comparison looked at is said to be sealed, over a batch row that is false."""
    from faults.planted.layers import ONE_EVENT, only
    from faults.planted.tables import edit

    place = quiet(stage, rng)
    step = stage.shape.slide or stage.shape.size
    slot = int(place[0] // step * step)
    edit(stage.table("batch"), lambda rows: only(place, ONE_EVENT, rows))
    stage.control("DELETE FROM seals WHERE slot_start = ?", slot)
    stage.control(
        "INSERT INTO seals (pipeline, version, slot_start, slot_end, state, revision, digest, rows, explained, fault, "
        "reconciliation, changed_at) VALUES (?, ?, ?, ?, 'sealed', 1, 'x', 1, 0, '', 0, 0)",
        stage.name, stage.version(), slot, slot + step,
    )  # fmt: skip
    return lambda: bool(stage.control("SELECT 1 FROM seals WHERE slot_start = ? AND digest = 'x'", slot))


def held_as_sealed(stage: Stage, rng: random.Random) -> Still:
    """A row is harmed and its window held; then somebody writes `sealed` over it, and forgets what was found."""
    from faults.planted import verbs
    from faults.planted.layers import ONE_EVENT, only
    from faults.planted.stage import let_go
    from faults.planted.tables import edit

    place = quiet(stage, rng)
    step = stage.shape.slide or stage.shape.size
    slot = int(place[0] // step * step)
    edit(stage.table("batch"), lambda rows: only(place, ONE_EVENT, rows))
    verbs.expect(verbs.reconcile(stage))
    let_go()
    assert stage.control("SELECT state FROM seals WHERE slot_start = ?", slot) == [("held",)]
    stage.control("UPDATE seals SET state = 'sealed', fault = '' WHERE slot_start = ?", slot)
    stage.control("UPDATE incidents SET closed_at = 1 WHERE closed_at IS NULL")
    return lambda: stage.control("SELECT state FROM seals WHERE slot_start = ?", slot) == [("sealed",)]


def between_judge_and_seal(change: Callable[[Stage, int, int], None], *, harmed: bool) -> Harm:
    """A comparison's row is edited after it was judged, and before its windows are put into their states."""
    from faults.planted.layers import ONE_EVENT, only
    from faults.planted.stage import let_go
    from faults.planted.tables import edit

    def harm(stage: Stage, rng: random.Random) -> None:
        from tally.reconcile.compare import compare
        from tally.reconcile.judge import judge
        from tally.reconcile.seal import seal as put_seals

        place = quiet(stage, rng)
        step = stage.shape.slide or stage.shape.size
        if harmed:
            edit(stage.table("batch"), lambda rows: only(place, ONE_EVENT, rows))
        number = compare(stage.name)
        judge(number)
        let_go()
        change(stage, number, int(place[0] // step * step))
        put_seals(number)
        let_go()

    return harm


def verdict_flipped(stage: Stage, number: int, slot: int) -> None:
    assert stage.control("SELECT verdict FROM reconciliations WHERE id = ?", number) == [("held",)]
    stage.control("UPDATE reconciliations SET verdict = 'reconciled' WHERE id = ?", number)


def slot_edited(**to: Any) -> Callable[[Stage, int, int], None]:
    """What the comparison says of one slot; None: the slot is left out."""

    def change(stage: Stage, number: int, slot: int) -> None:
        ((text,),) = stage.control("SELECT slots FROM reconciliations WHERE id = ?", number)
        slots = [{**one, **to} if one["start"] == slot else one for one in json.loads(text)]
        if not to:
            slots = [one for one in slots if one["start"] != slot]
        assert slots != json.loads(text)
        stage.control("UPDATE reconciliations SET slots = ? WHERE id = ?", json.dumps(slots), number)

    return change


def store_gone(stage: Stage, rng: random.Random) -> Still:
    """The whole control store is deleted."""
    for file in stage.home.glob("control.db*"):
        file.unlink()
    return lambda: not (stage.home / "control.db").exists()


def document(table: str, column: str, change: Change, where: str = "1 = 1") -> Harm:
    """A JSON column of the newest row of a table."""

    def harm(stage: Stage, rng: random.Random) -> Still:
        ((number, text),) = stage.control(
            f"SELECT rowid, {column} FROM {table} WHERE {where} ORDER BY rowid DESC LIMIT 1"
        )
        changed = json.dumps(change(json.loads(text)))
        assert changed != text
        stage.control(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", changed, number)
        return lambda: stage.control(f"SELECT {column} FROM {table} WHERE rowid = ?", number) == [(changed,)]

    return harm


def plain(table: str, change: str, where: str = "1 = 1") -> Harm:
    """Columns of the newest row of a table, as SQL sets them."""

    def harm(stage: Stage, rng: random.Random) -> Still:
        ((number,),) = stage.control(f"SELECT rowid FROM {table} WHERE {where} ORDER BY rowid DESC LIMIT 1")
        before = stage.control(f"SELECT * FROM {table} WHERE rowid = ?", number)
        stage.control(f"UPDATE {table} SET {change} WHERE rowid = ?", number)
        after = stage.control(f"SELECT * FROM {table} WHERE rowid = ?", number)
        assert after != before
        return lambda: stage.control(f"SELECT * FROM {table} WHERE rowid = ?", number) == after

    return harm


def row_gone(table: str, where: str, order: str = "rowid") -> Harm:
    """The first row of a table that a condition holds for."""

    def harm(stage: Stage, rng: random.Random) -> Still:
        before = stage.control(f"SELECT count(*) FROM {table}")[0][0]
        stage.control(
            f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} WHERE {where} ORDER BY {order} LIMIT 1)"
        )
        assert stage.control(f"SELECT count(*) FROM {table}")[0][0] == before - 1
        return lambda: bool(stage.control(f"SELECT count(*) FROM {table}")[0][0] < before)

    return harm


def all_gone(table: str) -> Harm:
    def harm(stage: Stage, rng: random.Random) -> Still:
        stage.control(f"DELETE FROM {table}")
        return lambda: not stage.control(f"SELECT count(*) FROM {table}")[0][0]

    return harm


def one_more(body: dict[str, Any]) -> dict[str, Any]:
    """A manifest whose largest cell counts one more row."""
    max(body["cells"], key=lambda cell: cell[2])[2] += 1
    return body


def other_sum(body: dict[str, Any]) -> dict[str, Any]:
    largest = max(body["cells"], key=lambda cell: cell[2])
    largest[5] = f"{int(largest[5], 16) ^ 1:x}"
    return body


def shifted(by: int) -> Change:
    """Every range of offsets, [from, to), further by so many."""

    def change(ranges: Any) -> Any:
        if isinstance(ranges, dict):
            return {name: change(one) for name, one in ranges.items()}
        return [max(0, ranges[0] + by), max(0, ranges[1] + by)]

    return change
