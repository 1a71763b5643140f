"""What the bench asks of an engine that drains a topic into a table of windows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from bench.peers.meter import Cost


@dataclass(frozen=True, kw_only=True)
class Work:
    """A topic of rides to count and sum by minute and one key, and an empty folder for all that comes of it."""

    bootstrap: str
    topic: str
    key: str
    folder: Path
    profile: Path | None = None  # a folder for recordings


@dataclass(frozen=True, kw_only=True)
class Command:
    """What is run, and what its environment has beside the bench's own."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def whole_env(self) -> dict[str, str]:
        """The environment without settings of the bench's own home, and with the command's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
        return {**kept, **self.env}


class Engine(Protocol):
    """One way to do the work."""

    @property
    def name(self) -> str: ...

    def drain(self, work: Work) -> Command:
        """What reads all that the topic now holds, commits it, and ends."""
        ...

    def rows(self, work: Work) -> pa.Table:
        """What a reader of its table then gets: w, the window's start in milliseconds, k, n and amount."""
        ...

    def up_at(self, work: Work, cost: Cost) -> float:
        """When its processes were up, and the job began."""
        ...

    def commits(self, work: Work) -> Path:
        """The folder of its table's log, with a file for each commit."""
        ...


def newest_commit(folder: Path, ends: Iterable[str] = (".json",)) -> float:
    """When the last commit of a table became visible."""
    times = [file.stat().st_mtime for file in folder.iterdir() if file.name.endswith(tuple(ends))]
    return max(times, default=0.0)


def started_at(cost: Cost) -> float:
    """The mark that an engine's own command prints once it is up."""
    return cost.marks.get("@start", cost.began)
