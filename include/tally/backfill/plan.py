"""What a backfill would do, and whether it can, as a value: the dry run prints it, the real one runs it. No Spark."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tally.base.duration import from_millis, human, iso, millis, parse_duration, parse_instant, to_millis
from tally.base.errors import AnswerIsNo, TallyError
from tally.catalog.spec import Pipeline
from tally.control.beginnings import reach

# Windows restated and reconciled in one job. A day of a busy pipeline fits the batch job's heap with room to spare; a
# smaller chunk pays a JVM's start (8 s) more often, a larger one repeats more work when it fails.
CHUNK = timedelta(hours=24)
MOST_CHUNKS = 1000  # Airflow maps at most 1,024 tasks over one list


@dataclass(frozen=True, kw_only=True)
class Hole:
    """Offsets [first, end) of a partition that neither the archive nor Kafka holds.

    Windows that need no event before `before` are untouched by it; None: nobody can tell.
    """

    topic: str
    partition: int
    first: int
    end: int
    before: datetime | None

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offsets [{self.first}, {self.end})"


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is left to restate from: the holes in it, and how many archived and not yet archived records there are."""

    holes: tuple[Hole, ...] = ()
    archived: int = 0
    waiting: int = 0  # in Kafka, and taken into the archive by the first chunk
    closed_to: datetime | None = None  # the stream's watermark: later windows cannot be sealed yet
    said: datetime | None = None  # where a person said that the numbers begin


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Windows that start in [since, until): one restatement, one comparison."""

    since: datetime
    until: datetime

    def as_dict(self) -> dict[str, str]:
        return {"from": iso(self.since), "to": iso(self.until)}

    def __str__(self) -> str:
        return f"[{iso(self.since)}, {iso(self.until)})"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The chunks of a backfill in order; with a problem it cannot be run, a note is only to be known."""

    pipeline: str
    version: str
    window: str
    since: datetime
    until: datetime
    chunks: tuple[Chunk, ...]
    coverage: Coverage
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def possible(self) -> bool:
        return not self.problems

    def require(self) -> Plan:
        """This plan, or AnswerIsNo with its first problem."""
        if self.problems:
            raise AnswerIsNo(
                "; ".join(self.problems),
                pipeline=self.pipeline,
                field="from",
                cure="start later, where all records are held",
            )
        return self

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline, "version": self.version, "from": iso(self.since), "to": iso(self.until),
            "possible": self.possible, "problems": list(self.problems), "notes": list(self.notes),
            "archived_records": self.coverage.archived, "waiting_records": self.coverage.waiting,
            "chunks": [chunk.as_dict() for chunk in self.chunks],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterable[str]:
        """The plan as a person reads it."""
        whole = Chunk(since=self.since, until=self.until)
        yield f"{self.pipeline} {self.version} ({self.window}): restate and reconcile windows {whole}"
        yield f"  from {self.coverage.archived:,} archived records, and {self.coverage.waiting:,} more in Kafka"
        yield f"  in {len(self.chunks)} chunk{'s' if len(self.chunks) > 1 else ''}:"
        shown = self.chunks if len(self.chunks) <= 12 else (*self.chunks[:10], None, self.chunks[-1])
        yield from (f"    {chunk or '...'}" for chunk in shown)
        yield from (f"  note: {note}" for note in self.notes)
        yield from (f"  PROBLEM: {problem}" for problem in self.problems)
        yield "  it can be run" if self.possible else "  it cannot be run"


def plan(
    pipeline: Pipeline,
    since: str | datetime,
    until: str | datetime,
    *,
    coverage: Coverage,
    chunk: str | timedelta = CHUNK,
) -> Plan:
    """Cut the windows that start in [since, until) into chunks on the window grid; wrong use is a TallyError."""
    asked = parse_instant(since, field="from"), parse_instant(until, field="to")
    if asked[0] >= asked[1]:
        raise TallyError(
            f"{iso(asked[0])} is not before {iso(asked[1])}",
            pipeline=pipeline.name,
            field="from",
            cure="give from < to",
        )
    first, last = widened(pipeline, *asked)
    chunks = tuple(cut(pipeline, first, last, parse_duration(chunk, field="chunk")))
    notes: list[str] = []
    if (first, last) != asked:
        notes.append(f"widened to the window grid of {human(pipeline.window.step)}")
    if coverage.closed_to is None:
        notes.append("the stream has closed no window yet: nothing can be sealed before it does")
    elif last > coverage.closed_to:
        notes.append(f"windows that end after {iso(coverage.closed_to)} are still open: restated now, sealed later")
    problems: list[str] = []
    for hole in coverage.holes:
        begun = hole.first == 0 and coverage.said is not None and first >= coverage.said
        touched = not begun and (hole.before is None or needs_from(pipeline, hole.topic, first) < hole.before)
        until_when = (
            "which events they held is not known"
            if hole.before is None
            else f"they held events before {iso(hole.before)}"
        )
        (problems if touched else notes).append(f"records are gone: {hole}; {until_when}")
    return Plan(
        pipeline=pipeline.name,
        version=pipeline.version,
        window=str(pipeline.window),
        since=first,
        until=last,
        chunks=chunks,
        coverage=coverage,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def widened(pipeline: Pipeline, since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """The smallest range on the window grid that holds this one."""
    step, end = millis(pipeline.window.step), to_millis(until)
    return from_millis(pipeline.slot(to_millis(since))), from_millis(-(-end // step) * step)


def cut(pipeline: Pipeline, since: datetime, until: datetime, size: timedelta) -> Iterable[Chunk]:
    """Half-open pieces of at most `size`, and at least one step of the grid, end to end."""
    step = pipeline.window.step
    if size <= timedelta(0):
        raise TallyError(f"a chunk of {human(size)}", pipeline=pipeline.name, field="chunk", cure='e.g. "24 hours"')
    length = max(step, size // step * step)
    if (until - since) / length > MOST_CHUNKS:
        raise TallyError(
            f"{iso(since)} to {iso(until)} is more than {MOST_CHUNKS} chunks of {human(length)}",
            pipeline=pipeline.name,
            field="chunk",
            cure="take larger chunks, or a shorter range",
        )
    while since < until:
        yield Chunk(since=since, until=min(since + length, until))
        since += length


def needs_from(pipeline: Pipeline, topic: str, since: datetime) -> datetime:
    """The oldest event time of a topic that the windows from `since` on hold, or would be changed by."""
    return since - timedelta(milliseconds=reach(pipeline, topic))
