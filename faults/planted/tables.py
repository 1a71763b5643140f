"""Delta tables changed from outside: by a commit of another writer's, or in the file itself, which no log tells of."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from deltalake import DeltaTable, write_deltalake

from faults.planted.stage import Stage
from faults.planted.verdict import Place, place_of

Row = dict[str, Any]
Rows = list[Row]
Change = Callable[[Rows], Rows]


def rows_of(path: str) -> Rows:
    found: Rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def edit(path: str, change: Change) -> None:
    """Replace all rows by what becomes of them, in one commit."""
    data = DeltaTable(path).to_pyarrow_table()
    after = change(data.to_pylist())
    assert repr(after) != repr(data.to_pylist()), f"nothing in {path} was changed"
    write_deltalake(path, pyarrow.Table.from_pylist(after, schema=data.schema), mode="overwrite")


def edit_in_place(path: str, change: Change) -> None:
    """Change rows within the files that hold them; the table's log knows nothing of it."""
    changed = 0
    for uri in DeltaTable(path).file_uris():
        file = Path(uri.removeprefix("file://"))
        data = pyarrow.parquet.ParquetFile(file).read()
        before = data.to_pylist()
        after = change([dict(row) for row in before])
        if repr(after) != repr(before):
            changed += 1
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(after, schema=data.schema), file)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    assert changed, f"nothing in {path} was changed"


def lies_at(row: Row, place: Place) -> bool:
    return place_of(row) == place


def newest(rows: Rows) -> dict[Place, Row]:
    """The rows that are read of a stream's table: the newest micro-batch's word."""
    found: dict[Place, Row] = {}
    for row in rows:
        place = place_of(row)
        if place not in found or row.get("_batch", 0) > found[place].get("_batch", 0):
            found[place] = row
    return found


def quiet(stage: Stage, rng: random.Random, *, agreed: bool = True) -> Place:
    """A window and key that nothing touches which arrives later; `agreed`: both layers have the same of it."""
    now, then = stage.truth(), stage.truth(base=True)
    streamed = newest(rows_of(stage.table("speed")))

    def alike(place: Place) -> bool:
        row = streamed.get(place)
        return row is not None and (row["n"], row["total"]) == then[place]

    from faults.planted.story import FLUSHED, MINUTE, T0

    least = 1 if stage.kind == "events" else 2  # events
    calm = [
        place for place in sorted(then, key=str)
        if now.get(place) == then[place] and T0 + 12 * MINUTE < place[0] < FLUSHED - 10 * MINUTE
        and then[place][0] >= least
    ]  # fmt: skip
    both = [place for place in calm if alike(place) == agreed]
    if not both:
        raise RuntimeError(f"{stage.name}: the story has no {'agreed' if agreed else 'differing'} window")
    return rng.choice(both)


def log_entry(path: str, kind: str) -> tuple[Path, list[dict[str, Any]]]:
    """The newest entry of a table's log in which Tally wrote words of a kind, as actions."""
    for file in sorted(Path(path, "_delta_log").glob("*.json"), reverse=True):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if words_in(actions).get("kind") == kind:
            return file, actions
    raise RuntimeError(f"{path} has no commit of {kind}")


def words_in(actions: list[dict[str, Any]]) -> dict[str, Any]:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    told: dict[str, Any] = json.loads(info.get("userMetadata") or "{}").get("tally", {})
    return told


def reword(path: str, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change Tally's words in the newest commit of a kind, in its entry of the log."""
    file, actions = log_entry(path, kind)
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    told = json.loads(info["userMetadata"])
    change(told["tally"])
    info["userMetadata"] = json.dumps(told, separators=(",", ":"))
    file.write_text("".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
