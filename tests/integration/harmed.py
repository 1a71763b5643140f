"""A stream that has run, and copies of its home in which something is harmed as power cuts and people do it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import world as worlds
from world import World

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.control import ledger
from tally.speed import checkpoint

NAME = "tumbling_u"
HOWS = ("empty", "garbled", "truncated")


def make(folder: Path, prefix: str, broker: str, patch: pytest.MonkeyPatch, path: str) -> World:
    """A stream that stopped twice; what the checkpoint was after the first time lies beside it."""
    patch.setenv("TALLY_SHARED", worlds.PATHS[path])
    patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "25")
    made = worlds.make(folder, prefix, broker, patch, [NAME])
    records = worlds.story(3, 120, prefix, late=0.05)
    made.produce(records[: len(records) // 2])
    made.stream()
    shutil.copytree(settings().checkpoint_root, settings().home / "older")
    shutil.copytree(made.path("speed", NAME), settings().home / "older-table")
    made.produce(records[len(records) // 2 :])
    made.stream()
    return made


def copied(made: World, folder: Path, patch: pytest.MonkeyPatch) -> World:
    """The same topics and catalogue with a copy of all that the stream has."""
    shutil.copytree(settings().home, folder / "home")
    patch.setenv("TALLY_HOME", str(folder / "home"))
    starts = {name: set(starts) for name, starts in made.starts.items()}
    return replace(made, starts=starts, drained=list(made.drained))


def root(world: World) -> Path:
    pipeline = world.pipeline(NAME)
    return Path(checkpoint.root(NAME, pipeline.version, checkpoint.generation(NAME, pipeline.version)))


def generations(world: World) -> list[Path]:
    return sorted(Path(settings().checkpoint_root, NAME, world.pipeline(NAME).version).iterdir())


def newest(world: World) -> ledger.MicroBatch:
    return world.ledger(NAME)[-1]


def plan(world: World, back: int = 0) -> Path:
    return root(world) / "offsets" / str(newest(world).batch - back)


def done(world: World) -> Path:
    return root(world) / "commits" / str(newest(world).batch)


def entry(world: World, ahead: int = 0) -> Path:
    """The entry of the table's log that holds the newest micro-batch, or one that is not there yet."""
    return Path(world.path("speed", NAME), "_delta_log", f"{newest(world).delta_version + ahead:020d}.json")


def harm(file: Path, how: str, like: Path | None = None) -> None:
    """Leave a file as a power cut does, or without its end; `like`: what it would have been."""
    whole = (like or file).read_bytes()
    if how == "missing":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "garbled": b"\xff\x00" * 40, "truncated": whole[: len(whole) * 2 // 3]}[how])


def harm_state(world: World, how: str) -> None:
    """Harm the newest version of the state in each partition: the next micro-batch loads it."""
    for file in root(world).glob(f"state/*/*/{newest(world).batch + 1}.delta"):
        harm(file, how)


def put_back_older_checkpoint(world: World) -> None:
    shutil.rmtree(settings().checkpoint_root)
    (settings().home / "older").rename(settings().checkpoint_root)


def put_back_older_table(world: World) -> None:
    shutil.rmtree(world.path("speed", NAME))
    (settings().home / "older-table").rename(world.path("speed", NAME))


def shift(world: World, by: int) -> None:
    """Have the newest plan end elsewhere, as a checkpoint does that went on without this table."""
    head, ends = plan(world).read_text().rsplit("\n", 1)
    moved = {topic: {p: end + by for p, end in parts.items()} for topic, parts in json.loads(ends).items()}
    assert list(moved) == world.topics(NAME)
    plan(world).write_text(f"{head}\n{json.dumps(moved)}")


# What must be refused, by the name of the check that finds it and what it says.
REFUSED: dict[str, tuple[Callable[[World], None], str, str]] = {
    "the checkpoint is deleted": (lambda w: shutil.rmtree(root(w)), "checkpoint", "it was deleted"),
    "an older checkpoint is put back": (put_back_older_checkpoint, "checkpoint", "an older copy was put back"),
    "the checkpoint has another history": (lambda w: shift(w, -1), "ledger", "another history"),
    "the checkpoint's metadata is empty": (lambda w: harm(root(w) / "metadata", "empty"), "checkpoint", "metadata"),
    "a plan is missing in the middle": (lambda w: plan(w, 1).unlink(), "offsets log", "is missing in the middle"),
    "the newest plan is missing": (lambda w: plan(w).unlink(), "offsets log", r"is missing, but commits/\d+ is there"),
    **{
        f"the newest plan is {how}, and applied": (
            lambda w, how=how: harm(plan(w), how), "offsets log", r"offsets/\d+ is (empty|garbled)"
        )
        for how in HOWS
    },
    **{
        f"the newest commit of the table is {how}": (
            lambda w, how=how: harm(entry(w), how), "table", r"entry \d+ of its log is (empty|garbled)"
        )
        for how in HOWS
    },
    "the newest commit of the table is missing": (
        lambda w: harm(entry(w), "missing"), "table", "but micro-batch .* is in version"
    ),
    "an older table is put back": (put_back_older_table, "table", "an older copy"),
    "the table is deleted": (lambda w: shutil.rmtree(w.path("speed", NAME)), "table", "it is gone, but micro-batch"),
}  # fmt: skip


def refusal() -> TallyError:
    """What a driver says that is to drain the stream and does not."""
    from tally.speed.driver import Driver

    (failed,) = Driver([NAME], until_caught_up=True).run()
    return failed
