"""What Spark's write-ahead log fixed about a micro-batch before it ran: offset ranges and the watermarks in force."""

from __future__ import annotations

import json
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tally.base.errors import AnswerIsNo
from tally.base.lines import lines_of
from tally.base.settings import settings
from tally.control import ledger
from tally.control.ledger import HELD, NEAR, Ranges


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One micro-batch as planned: half-open ranges, and event-time watermarks in milliseconds."""

    batch: int
    ranges: Ranges
    late_watermark: int
    watermark: int
    ids: str = HELD
    first: int | None = None  # where it is several that are taken as one: the number of the first
    since: int = 0  # the first one of its topic's stream in which the pipeline took part


# The path of a generation.
Chosen = Literal["shared", "own"]
# In the folder of a generation that shares its topic's stream: the topic's name.
SHARED = "shared"


def root(pipeline: str, version: str, generation: int) -> str:
    """The checkpoint of one generation of a pipeline's version: its own, or that of the topic's stream it shares."""
    own = folder(pipeline, version, generation)
    topic = shared_topic(own)
    return own if topic is None else topic_root(topic)


def folder(pipeline: str, version: str, generation: int) -> str:
    """The folder of a generation: its own checkpoint, or what says that it shares its topic's stream."""
    return f"{settings().checkpoint_root}/{pipeline}/{version}/g{generation}"


def path_of(pipeline: str, version: str) -> Chosen | None:
    """Which way the newest generation takes; where no folder is seen, its newest micro-batch; None before its first."""
    chosen = folder(pipeline, version, generation(pipeline, version))
    if Path(chosen).exists():
        return "own" if shared_topic(chosen) is None else "shared"
    newest = ledger.newest(pipeline, version)
    return None if newest is None else "shared" if newest.ids == NEAR else "own"


def topic_root(topic: str) -> str:
    """The checkpoint of the stream of a topic that several pipelines share."""
    return f"{settings().checkpoint_root}/_topics/{topic}"


def shared_topic(own: str) -> str | None:
    """The topic whose stream a generation shares; None where it has a query of its own."""
    try:
        return Path(own, SHARED).read_text() or None
    except OSError:
        return None


def generation(pipeline: str, version: str) -> int:
    """The newest generation that has a checkpoint; 1 where none has."""
    generations = Path(f"{settings().checkpoint_root}/{pipeline}/{version}")
    found = [int(path.name[1:]) for path in generations.glob("g*") if path.name[1:].isdigit()]
    return max(found, default=1)


def planned(checkpoint: str, batch: int, topics: list[str]) -> Planned:
    """The plan of a micro-batch, from offsets/N and offsets/N-1 (sources/*/0 before the first)."""
    metadata, ends = entry(checkpoint, batch, topics)
    if batch > 0:
        earlier, starts = entry(checkpoint, batch - 1, topics)
    else:
        earlier, starts = {}, first_offsets(checkpoint, topics)
    ranges: Ranges = {
        topic: {p: (starts.get(topic, {}).get(p, 0), to) for p, to in parts.items()} for topic, parts in ends.items()
    }
    return Planned(
        batch=batch,
        ranges=ranges,
        late_watermark=int(earlier.get("batchWatermarkMs", 0)),
        watermark=int(metadata.get("batchWatermarkMs", 0)),
    )


def unread(checkpoint: str, topics: list[str]) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """Per topic, the offsets from which records must still be there, and those up to which they ever were.

    A micro-batch that was planned and not committed is read again, from its start.
    """
    batch = newest_batch(checkpoint)
    if batch < 0:
        return {}, {}
    plan = planned(checkpoint, batch, topics)
    over = Path(checkpoint, "commits", str(batch)).exists()
    needed = {t: {p: to if over else start for p, (start, to) in parts.items()} for t, parts in plan.ranges.items()}
    return needed, {t: {p: to for p, (_, to) in parts.items()} for t, parts in plan.ranges.items()}


def newest_batch(checkpoint: str) -> int:
    """The newest micro-batch that was planned; -1 where none was."""
    return max(batches(checkpoint, "offsets"), default=-1)


def batches(checkpoint: str, log: str) -> list[int]:
    """The micro-batches that a log of the checkpoint (offsets or commits) has an entry of, in order."""
    return sorted(int(path.name) for path in Path(checkpoint, log).glob("*") if path.name.isdigit())


def has_metadata(checkpoint: str) -> bool:
    """Whether Spark would know the checkpoint again: it has an id."""
    try:
        return bool(json.loads(Path(checkpoint, "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def plan_fault(checkpoint: str, batch: int, sources: Sized) -> str:
    """What is wrong with an entry of the offset log, "" for nothing: version, metadata, then one line a source."""
    fault, lines = log_lines(Path(checkpoint, "offsets", str(batch)))
    if fault or len(lines) == len(sources) + 1:
        return fault
    return "is cut short"


def commit_fault(checkpoint: str, batch: int) -> str:
    """What is wrong with an entry of the commit log, "" for nothing."""
    fault, lines = log_lines(Path(checkpoint, "commits", str(batch)))
    return fault if fault or lines else "is cut short"


def log_lines(path: Path) -> tuple[str, list[Any]]:
    """What is wrong with a log's entry as a whole, and its documents; a source that has nothing is told as "-"."""
    try:
        version, *entries = lines_of(path.read_bytes().decode()) or [""]
        if not version.startswith("v"):
            return "is garbled" if version or entries else "is empty", []
        return "", [None if line == "-" else json.loads(line) for line in entries]
    except (OSError, ValueError) as error:
        return ("is missing" if isinstance(error, FileNotFoundError) else "is garbled or cut short"), []


def entry(checkpoint: str, batch: int, topics: list[str]) -> tuple[dict[str, Any], dict[str, dict[int, int]]]:
    """One entry of the offset log: its metadata and the end offsets per topic."""
    path = Path(checkpoint, "offsets", str(batch))
    try:
        found = [json.loads(line) for line in lines_of(path.read_bytes().decode()) if line.startswith("{")]
        metadata, sources = found[0], found[1:]
    except (OSError, ValueError, IndexError) as error:
        raise unreadable(path, error) from None
    return metadata, by_topic(sources)


def first_offsets(checkpoint: str, topics: list[str]) -> dict[str, dict[int, int]]:
    """Where each source began; a source that has not begun has nothing."""
    found = []
    for number in range(len(topics)):
        path = Path(checkpoint, "sources", str(number), "0")
        if path.exists():
            text = path.read_text(errors="replace")
            try:
                found.append(json.loads(text[text.index("{") :]))
            except ValueError:
                raise unreadable(path, "it is garbled or cut short") from None
    return by_topic(found)


def unreadable(path: Path, why: object) -> AnswerIsNo:
    return AnswerIsNo(
        f"cannot read the write-ahead log entry {path}: {why}",
        field="checkpoint",
        cure="put back that file if you have it, else: tally rebuild PIPELINE",
    )


def by_topic(sources: list[dict[str, dict[str, int]]]) -> dict[str, dict[int, int]]:
    return {topic: {int(p): int(o) for p, o in parts.items()} for source in sources for topic, parts in source.items()}
