"""What commits say of themselves, what a stream's checkpoint holds, and what files lie beside them, changed."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.planted.plant import Harm
from faults.planted.stage import Stage
from faults.planted.tables import edit, reword, rows_of

Reword = Callable[[dict[str, Any]], None]


def said(layer: str, kind: str, change: Reword) -> Harm:
    """Words of the newest commit of a kind; the control store's copies are left as they are."""

    def harm(stage: Stage, rng: random.Random) -> None:
        reword(stage.table(layer), kind, change)

    return harm


def said_and_copied(layer: str, kind: str, change: Reword) -> Harm:
    """The same, and the control store's copies of ingests are dropped, so that they are made from those words."""

    def harm(stage: Stage, rng: random.Random) -> None:
        reword(stage.table(layer), kind, change)
        stage.control("DELETE FROM manifests")
        stage.control("DELETE FROM ingests")

    return harm


def cell(at: int, change: Callable[[Any], Any]) -> Reword:
    """One number of the largest cell of a manifest: what is restated needs that one."""

    def act(words: dict[str, Any]) -> None:
        largest = max(words["manifest"]["cells"], key=lambda one: one[2])
        largest[at] = change(largest[at])

    return act


def put(name: str, change: Callable[[Any], Any]) -> Reword:
    def act(words: dict[str, Any]) -> None:
        words[name] = change(words[name])

    return act


def root(stage: Stage) -> Path:
    return stage.home / "checkpoints" / stage.name / stage.version() / "g1"


def newest(folder: Path) -> Path:
    return max((file for file in folder.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))


def offsets(by: int) -> Harm:
    """Where the stream goes on from, in the last micro-batch of its checkpoint: so many further in each partition."""

    def harm(stage: Stage, rng: random.Random) -> None:
        file = newest(root(stage) / "offsets")
        head, metadata, *sources = file.read_text().splitlines()
        moved = [
            {topic: {p: max(0, o + by) for p, o in parts.items()} for topic, parts in json.loads(line).items()}
            for line in sources
        ]
        put_text(file, "\n".join([head, metadata, *map(json.dumps, moved)]))

    return harm


def watermark(by: int) -> Harm:
    """The watermark in the last micro-batch of the checkpoint."""

    def harm(stage: Stage, rng: random.Random) -> None:
        file = newest(root(stage) / "offsets")
        head, metadata, *sources = file.read_text().splitlines()
        known = json.loads(metadata)
        known["batchWatermarkMs"] += by
        put_text(file, "\n".join([head, json.dumps(known), *sources]))

    return harm


def put_text(file: Path, text: str) -> None:
    file.write_text(text)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def last_batch_undone(stage: Stage, rng: random.Random) -> None:
    """The checkpoint as it was one micro-batch earlier: what it planned and committed last is gone."""
    for folder in ("offsets", "commits"):
        newest(root(stage) / folder).unlink()


def checkpoint_gone(stage: Stage, rng: random.Random) -> None:
    shutil.rmtree(root(stage))


def state_gone(stage: Stage, rng: random.Random) -> None:
    """The state store's files: what the stream remembers of open windows, sessions and ids."""
    shutil.rmtree(root(stage) / "state")


def audit_rows(stage: Stage, rng: random.Random) -> None:
    """The audit table's rows of every comparison, said to be explained by something else."""
    edit(stage.table("audit"), lambda rows: [{**row, "cause": "rounding"} for row in rows])


def audit_table(stage: Stage, rng: random.Random) -> None:
    path = stage.table("audit")
    assert rows_of(path)
    shutil.rmtree(path)


def last_entry(layer: str) -> Harm:
    """The newest entry of a table's log is emptied, as a full disk does."""

    def harm(stage: Stage, rng: random.Random) -> None:
        file = max(Path(stage.table(layer), "_delta_log").glob("*.json"))
        put_text(file, "")

    return harm


def last_entry_gone(layer: str) -> Harm:
    def harm(stage: Stage, rng: random.Random) -> None:
        file = max(Path(stage.table(layer), "_delta_log").glob("*.json"))
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    return harm
