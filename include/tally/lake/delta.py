"""Delta tables as their log tells of them: versions, and the words that Tally wrote into each commit. No Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tally.base.errors import TallyError
from tally.base.lines import lines_of

KEY = "tally"
ENTRY = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\b.*\.parquet")
# A stream's log has some hundred entries past its checkpoint, and the newest of them tell what a start must know.
LOOKED_INTO = 256
# How a commit's metrics call the files that it added: Spark's word, and that of delta-rs.
ADDED = ("numFiles", "num_added_files")


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One Delta commit: its version, Tally's own words in it (empty for others' commits), and Delta's metrics."""

    version: int
    timestamp: int
    words: dict[str, Any]
    metrics: dict[str, Any]


def table(path: str, version: int | None = None) -> DeltaTable | None:
    """The table at a path, as it is or as of a version; None where there is none yet."""
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        return None


def version(path: str) -> int:
    """The newest version of the table at a path; -1 where there is none yet."""
    found = table(path)
    return -1 if found is None else int(found.version())


def schema(path: str) -> list[Any]:
    """The columns of the table at a path; none where there is none yet."""
    found = table(path)
    return [] if found is None else list(found.schema().fields)


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


def commit_at(table: DeltaTable, version: int) -> Commit:
    """The commit that made the newest version of an open table; on a local disk no folder is listed for it."""
    if "://" in table.table_uri.removeprefix("file://"):
        return from_entry(table.history(1)[0])
    folder = unquote(table.table_uri.removeprefix("file://").rstrip("/"))
    text = Path(folder, "_delta_log", f"{version:020d}.json").read_text()
    return from_entry({"version": version, **commit_info(text)})


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


@dataclass(frozen=True, kw_only=True)
class Log:
    """A table's log as it lies there: its newest version, its newest commits first, and what no reader should trust."""

    version: int  # -1 where there is no log
    commits: tuple[Commit, ...] = ()
    harmed: int | None = None  # the newest version whose entry is not what was written
    wrong: str = ""

    def newest(self, kind: str) -> Commit | None:
        """The newest commit of a kind among those that were looked into."""
        return next((commit for commit in self.commits if commit.words.get("kind") == kind), None)

    def at(self, version: int) -> Commit | None:
        return next((commit for commit in self.commits if commit.version == version), None)


def log(path: str) -> Log:
    """Look at a table's log entry by entry: Delta takes an empty one for a commit of nothing, and loses its rows."""
    if "://" in path:
        return told_log(path)
    folder = Path(path, "_delta_log")
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    there = {int(found[1]) for name in names if (found := ENTRY.fullmatch(name))}
    base = max((int(found[1]) for name in names if (found := CHECKPOINT.fullmatch(name))), default=-1)
    newest, harmed, wrong = max([base, *there], default=-1), None, ""
    commits: list[Commit] = []
    for version in range(newest, -1, -1):
        file = folder / f"{version:020d}.json"
        whole = len(commits) < LOOKED_INTO
        if version <= base and not (whole and version in there):
            break  # Delta itself reads no further than its checkpoint
        fault, info = entry(file, whole=whole) if version in there else ("is missing", None)
        if fault and version > base and harmed is None:
            harmed, wrong = version, f"entry {version} of its log {fault}"
        if info is not None:
            commits.append(from_entry({"version": version, **info}))
    return Log(version=newest, commits=tuple(commits), harmed=harmed, wrong=wrong)


def told_log(path: str) -> Log:
    """The log of a table in an object store, as far as Delta itself tells of it.

    A store that does not answer cannot be told from a log that is harmed: a TallyError, which is tried again.
    """
    try:
        found = table(path)
        if found is None:
            return Log(version=-1)
        history = tuple(map(from_entry, found.history(LOOKED_INTO)))
        return Log(version=int(found.version()), commits=history)
    except (DeltaError, OSError) as error:
        raise TallyError(
            f"the log of {path} cannot be read: {str(error).splitlines()[0]}",
            field="TALLY_LAKE",
            cure="does the store answer, and may this user read it? If the log itself is harmed, move the table out of "
            "the way, and rebuild its stream",
        ) from None


def entry(file: Path, *, whole: bool = True) -> tuple[str, dict[str, Any] | None]:
    """What is wrong with a log entry ("" for nothing), and its commitInfo; not `whole`: only if it is empty."""
    if file.stat().st_size == 0:
        return "is empty", None
    if not whole:
        return "", None
    try:
        actions = [json.loads(line) for line in lines_of(file.read_bytes().decode())]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        files = sum("add" in action for action in actions)
    except (OSError, ValueError, TypeError):
        return "is garbled", None
    metrics = info.get("operationMetrics") or {}
    if files < max(int(metrics.get(name) or 0) for name in ADDED):
        return "is cut short", None
    return "", info


def commit_info(text: str) -> dict[str, Any]:
    """The commitInfo of a log entry."""
    for line in lines_of(text):
        if line.startswith('{"commitInfo"'):
            found: dict[str, Any] = json.loads(line)["commitInfo"]
            return found
    return {}


def words(kind: str, **more: Any) -> str:
    """The text for a commit's userMetadata."""
    return json.dumps({KEY: {"kind": kind, **more}}, separators=(",", ":"))
