"""What a demo's screen shows, gathered without a JVM: each pipeline's numbers, what was produced, and memory."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.demo.events import PAYMENTS, RIDES
from tally.demo.parts import Part, look_after
from tally.embedded import broker
from tally.host import process

MEMORY_EVERY = 5  # looks between two sums over all processes: 50 ms of work, and nothing moves faster


@dataclass
class Seen:
    """One look at the demo; `memory` maps part -> bytes."""

    pipelines: list[dict[str, Any]] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    classes: Counter[str] = field(default_factory=Counter)
    memory: dict[str, int] = field(default_factory=dict)
    trouble: str = ""


class Watch:
    """Looks at a home again and again, and remembers how far it read."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.seen = Seen()
        self._looks = 0
        self._truth = {topic: Truth(settings().home / "truth" / f"{topic}.csv") for topic in (RIDES, PAYMENTS)}

    def renew(self) -> None:
        """Renew `seen`; what cannot be known now, such as offsets of a broker that is not up, stays as it was."""
        from tally.sources.kafka import end_offsets
        from tally.supervise.status import statuses

        seen = Seen(pipelines=self.seen.pipelines, topics=self.seen.topics, memory=self.seen.memory)
        for part in self.parts:
            look_after(part)
        for truth in self._truth.values():
            truth.read_on()
            seen.classes += truth.classes
        if self._looks % MEMORY_EVERY == 0:
            seen.memory = memory()
        self._looks += 1
        with suppress(TallyError):
            if settings().kafka or process.find(broker.pidfile(settings())):
                seen.topics = {topic: sum(end_offsets(topic).values()) for topic in self._truth}
                seen.pipelines = [one.as_json() for one in statuses()]
        self.seen = seen


class Truth:
    """The classes of records in a truth file, counted as the file grows."""

    def __init__(self, file: Path) -> None:
        self.file, self.at, self.classes = file, 0, Counter[str]()

    def read_on(self) -> None:
        with suppress(OSError), self.file.open("rb") as lines:
            if not self.at:
                self.at = len(lines.readline())
            lines.seek(self.at)
            new = lines.read()
            whole = new[: new.rfind(b"\n") + 1]
            self.at += len(whole)
            self.classes.update(line.split(b",", 4)[3].decode() for line in whole.splitlines() if line.count(b",") > 3)


def memory() -> dict[str, int]:
    """Bytes of each part's processes; where Linux tells, what processes share is counted once (PSS)."""
    home = settings().home
    leaders = {"Kafka": broker.pidfile(settings())}
    leaders |= {file.stem: file for file in sorted((home / "run").glob("*.json"))}
    sessions = {
        int(process.read_json(file).get("pid", -1)): name for name, file in leaders.items() if process.find(file)
    }
    sums: Counter[str] = Counter()
    for one in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            name = sessions.get(one.pid) or sessions.get(os.getsid(one.pid))
            if name:
                sums[name] += own_bytes(one)
    return dict(sums)


def own_bytes(one: psutil.Process) -> int:
    full = one.memory_full_info()
    return int(getattr(full, "pss", 0) or full.rss)
