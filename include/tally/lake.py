"""Delta tables as their log tells of them: versions, and the words that Tally wrote into each commit. No Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

KEY = "tally"


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One Delta commit: its version, Tally's own words in it (empty for others' commits), and Delta's metrics."""

    version: int
    timestamp: int
    words: dict[str, Any]
    metrics: dict[str, Any]


def table(path: str) -> DeltaTable | None:
    """The table at a path, or None where there is none yet."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def version(path: str) -> int:
    """The newest version of the table at a path; -1 where there is none yet."""
    found = table(path)
    return -1 if found is None else int(found.version())


def commits(path: str) -> Iterator[Commit]:
    """The commits of a table whose log entries are retained, newest first; none where there is no table."""
    found = table(path)
    if found is None:
        return
    given, limit = 0, 64
    while True:
        history = found.history(limit)
        for entry in history[given:]:
            yield from_entry(entry)
        if len(history) < limit:
            return
        given, limit = len(history), limit * 8


def from_entry(entry: dict[str, Any]) -> Commit:
    try:
        words = json.loads(entry.get("userMetadata") or "{}")
    except ValueError:
        words = {}
    return Commit(
        version=int(entry["version"]),
        timestamp=int(entry.get("timestamp") or 0),
        words=words.get(KEY, {}) if isinstance(words, dict) else {},
        metrics=entry.get("operationMetrics") or {},
    )


def newest(path: str, kind: str) -> Commit | None:
    """The newest commit in which Tally wrote words of a kind."""
    return next((commit for commit in commits(path) if commit.words.get("kind") == kind), None)


def standing(path: str, kind: str, version: int) -> int:
    """The last version of a table before the next commit of a kind: what others changed since is seen in it."""
    last = version
    for commit in reversed(list(takewhile(lambda c: c.version > version, commits(path)))):
        if commit.words.get("kind") == kind:
            break
        last = commit.version
    return last


def words(kind: str, **more: Any) -> str:
    """The text for a commit's userMetadata."""
    return json.dumps({KEY: {"kind": kind, **more}}, separators=(",", ":"))
