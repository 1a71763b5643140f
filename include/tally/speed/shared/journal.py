"""Who runs in which micro-batch of a topic's stream, kept where it outlives the driver: by it a death has its suspects.

A name is written before the pipeline's work and taken away after it, in place and without waiting for the disk: what
kills a process leaves the written bytes, and a machine that loses its power was killed by no pipeline.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from tally.base.errors import NotAgain
from tally.lake import memory, session
from tally.speed.commit import Target

log = logging.getLogger(__name__)
# One death may be anybody's: a person's kill, a full machine. Who is met twice in one micro-batch is the cause of both.
DEATHS = 2
ME = uuid.uuid4().hex  # this process, which counts no death of its own
Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """Drivers that died in a row while a pipeline ran, the last one in this micro-batch; `restarts` as of then."""

    batch: int
    deaths: int
    restarts: int


class Journal:
    """The journal of one topic's stream; `restarts` tells how often a person wished for a pipeline's restart."""

    def __init__(self, root: str, restarts: Callable[[str], int]) -> None:
        self.root, self.restarts, self.guard = Path(root), restarts, Lock()
        self.root.mkdir(parents=True, exist_ok=True)
        self.named: dict[Place, tuple[int, int]] = {}  # its micro-batch, and which wish for a restart it runs by
        self.wishes: dict[Place, int] = {}
        self.over = False
        known, before = read(self.root / "suspicions"), read(self.root / "running")
        self.counted: str | None = known.get("counted")  # the last driver whose death was
        self.suspicions = {place_of(key): Suspicion(**one) for key, one in known.get("of", {}).items()}
        if before.get("driver") not in (None, ME, self.counted):
            self.count(before)
        (self.root / "running").touch()
        self.file = (self.root / "running").open("r+b", buffering=0)
        self.width = (self.root / "running").stat().st_size
        self.write()

    def count(self, before: dict[str, Any]) -> None:
        """Suspect everybody who ran when the driver before this one died."""
        for key, (batch, restarts) in before["runs"].items():
            place = place_of(key)
            known = self.suspicions.get(place)
            deaths = known.deaths if known is not None and known.restarts == restarts else 0
            self.suspicions[place] = Suspicion(batch=batch, deaths=deaths + 1, restarts=restarts)
            log.warning("a driver died while %s ran in micro-batch %s", place[0], batch, extra={"pipeline": place[0]})
        self.counted = before["driver"]
        self.keep()

    def keep(self) -> None:
        """Write the suspicions, and whose death they already hold, in one step."""
        told = {"counted": self.counted, "of": {key_of(place): asdict(one) for place, one in self.suspicions.items()}}
        draft = self.root / ".suspicions.draft"
        draft.write_text(json.dumps(told))
        os.replace(draft, self.root / "suspicions")

    @contextmanager
    def running(self, place: Place, batch: int) -> Iterator[None]:
        """Name a pipeline for as long as it runs. Once the JVM has gone, the driver has: what is written then stays."""
        self.name(place, batch)
        try:
            yield
        except BaseException as error:
            self.over = self.over or (memory.unanswered(error) and not session.answers())
            raise
        finally:
            self.name(place, None)

    def name(self, place: Place, batch: int | None) -> None:
        with self.guard:
            if self.over:
                return
            if batch is None:
                self.named.pop(place, None)
            else:
                self.named[place] = batch, self.wishes.get(place, 0)
            self.write()

    def write(self) -> None:
        """One write, that leaves nothing of a longer one before it."""
        data = json.dumps({"driver": ME, "runs": {key_of(place): told for place, told in self.named.items()}})
        self.width = max(self.width, len(data))
        os.pwrite(self.file.fileno(), data.ljust(self.width).encode(), 0)

    def close(self) -> None:
        """Say that this driver ends, and of nobody's doing."""
        with self.guard:
            if not self.over:
                self.named.clear()
                self.write()

    def suspects(self, place: Place) -> bool:
        """Whether it is to run while nobody else does, so that another death tells the one from the other."""
        return place in self.suspicions

    def outlived(self, place: Place, batch: int) -> None:
        """A pipeline's micro-batch is over: if it is the one in which drivers died, they did not die of it."""
        with self.guard:
            if place in self.suspicions and self.suspicions[place].batch <= batch:
                del self.suspicions[place]
                self.keep()

    def check(self, target: Target, topic: str) -> None:
        """Refuse whoever takes the driver along, until its file is another one or a person wishes for a restart."""
        place, pipeline = target.place, target.pipeline
        known, wish = self.suspicions.get(place), self.restarts(pipeline.name)
        self.wishes[place] = wish
        if known is not None and known.restarts == wish and known.deaths >= DEATHS:
            raise NotAgain(
                f"{known.deaths} drivers in a row died while it ran in micro-batch {known.batch} of topic {topic}, "
                "so the others go on without it",
                pipeline=pipeline.name,
                field="function",
                cure=f"mend what ends the driver (its log has the last words), then tally restart {pipeline.name}",
            )


def read(path: Path) -> dict[str, Any]:
    """A document as it was last written whole; nothing where there is none, or it was torn."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    except (OSError, ValueError):
        return {}


def key_of(place: Place) -> str:
    return "/".join(place)


def place_of(key: str) -> Place:
    name, _, version = key.rpartition("/")
    return name, version
