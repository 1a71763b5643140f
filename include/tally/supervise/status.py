"""How every pipeline is, for people and scripts: the verdict on its stream, its lag, its watermark, what is sealed.

A stream that keeps records waiting for longer than people were promised is an incident, until it is no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tally.base.duration import from_millis, iso, millis, parse_duration
from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import incidents, ledger, runs, seals, streams
from tally.control.store import now_ms
from tally.host import driver_files
from tally.sources import kafka
from tally.speed import checkpoint
from tally.speed.checkpoint import Chosen
from tally.supervise.policy import look
from tally.supervise.verdict import Signs, State, verdict
from tally.supervise.watch import watcher

STALE = "stale"
ASK_AGAIN = 5.0  # seconds that a Kafka which did not answer is left alone
silent_since: dict[str, float] = {}


@dataclass(frozen=True, kw_only=True)
class Health:
    """One stream as a person or a script wants to know it; times are UTC, None is what nobody knows."""

    pipeline: str
    state: State
    reason: str
    lag_records: int | None
    watermark: datetime | None
    freshness_seconds: float | None
    micro_batch_seconds: float | None  # how long the newest one took; the next one takes what came meanwhile
    sealed_to: datetime | None
    unexplained: int
    next_step: str
    watcher_seconds: float | None  # since somebody last watched over the streams

    def as_dict(self) -> dict[str, Any]:
        times = {
            name: moment and iso(moment)
            for name, moment in (("watermark", self.watermark), ("sealed_to", self.sealed_to))
        }
        return {**vars(self), **times}


@dataclass(frozen=True, kw_only=True)
class Status:
    """A pipeline among all: the health of its stream, the records that this took, and its slots by their states."""

    health: Health
    version: str | None = None
    path: Chosen | None = None  # of its newest generation
    events_in: int = 0
    newest_window: datetime | None = None
    sealed: int = 0
    partial: int = 0
    held: int = 0
    explained: int = 0  # events that the layers differ by, and whose cause is known

    def as_json(self) -> dict[str, Any]:
        """The status as `tally status --json` prints it: health's fields first."""
        own = {name: value for name, value in vars(self).items() if name != "health"}
        return {**self.health.as_dict(), **own, "newest_window": self.newest_window and iso(self.newest_window)}


def diagnose(pipeline: Pipeline | str) -> Health:
    """The health of one pipeline's stream; Kafka not answering makes the lag unknown, not the answer fail."""
    if isinstance(pipeline, str):
        pipeline = catalogue().pipeline(pipeline)
    newest = ledger.newest(pipeline.name, pipeline.version)
    end = seals.sealed_to(pipeline.name, pipeline.version)
    signs = signs_of(pipeline, newest)
    found = verdict(signs)
    fresh, took = (float(signs.stream.get(name, -1.0)) for name in ("freshness", "took"))
    return Health(
        pipeline=pipeline.name,
        state=found.state,
        reason=found.reason,
        lag_records=signs.lag,
        watermark=from_millis(newest.watermark) if newest and newest.watermark > 0 else None,
        freshness_seconds=round(fresh, 3) if fresh >= 0 else None,
        micro_batch_seconds=round(took, 3) if took >= 0 else None,
        sealed_to=None if end is None else from_millis(end),
        unexplained=unexplained(pipeline),
        next_step=found.next_step,
        watcher_seconds=None if signs.watcher_silent is None else round(signs.watcher_silent / 1000, 1),
    )


def signs_of(pipeline: Pipeline, newest: ledger.MicroBatch | None) -> Signs:
    """Gather the signs; nothing is changed."""
    now = now_ms()
    row = streams.stream(pipeline.name) or {}
    app = row.get("app") or driver_files.APP
    driver, seen = streams.driver(app) or {}, watcher()
    mine = row.get("version") == pipeline.version
    progressed = max(int(row.get("progressed_at", 0)), newest.committed_at if newest and mine else 0)
    return Signs(
        pipeline=pipeline.name,
        version=pipeline.version,
        wanted=streams.wanted(pipeline.name),
        lives=look(app).lives,
        driver_age=now - int(driver["launched_at"]) if driver else None,
        silent=now - int(driver["heartbeat_at"]) if driver else None,
        deaths=int(driver.get("deaths", 0)),
        driver_retry_at=int(driver.get("retry_at", 0)),
        last_words=str(driver.get("last_words", "")),
        stream=row,
        progress_age=now - progressed if progressed else None,
        lag=lag(pipeline, newest),
        watcher_silent=seen.silent if seen else None,
        log=driver.get("log") or str(driver_files.log_path(app)),
        now=now,
    )


def lag(pipeline: Pipeline, newest: ledger.MicroBatch | None) -> int | None:
    """Committed records that no micro-batch of this version holds yet; None when Kafka does not answer."""
    if time.monotonic() - silent_since.get("Kafka", -ASK_AGAIN) < ASK_AGAIN:
        return None
    try:
        return waiting(pipeline, newest, lambda topic: kafka.end_offsets(topic, kafka.HURRY))
    except TallyError as error:
        if error.field == "TALLY_KAFKA":  # the others' lag is not asked for at once: each would wait as long
            silent_since["Kafka"] = time.monotonic()
        return None


def waiting(pipeline: Pipeline, newest: ledger.MicroBatch | None, until: Callable[[str], dict[int, int]]) -> int:
    """Records of its topics before some offsets that no micro-batch of this version holds."""
    total = 0
    for topic in pipeline.reads:
        applied = newest.ends(topic.name) if newest else {}
        begin = kafka.begin_offsets(topic.name, kafka.HURRY)
        for partition, end in until(topic.name).items():
            total += max(0, end - applied.get(partition, begin.get(partition, 0)))
    return total


def unexplained(pipeline: Pipeline) -> int:
    """Events without a cause in the comparisons that slots are now held by, or in the newest that was not sealed."""
    numbers = seals.held_by(pipeline.name, pipeline.version)
    newest = runs.reconciliation_history(pipeline.name, limit=1)
    numbers |= {row.id for row in newest if row.verdict == "held" and row.version == pipeline.version}
    return sum(int(row.summary.get("unexplained", 0)) for row in map(runs.reconciliation, numbers) if row)


def diagnose_all(pipelines: Iterable[Pipeline] | None = None) -> list[Health]:
    """The health of every pipeline of the catalogue, or of those given."""
    return [diagnose(pipeline) for pipeline in (pipelines or catalogue().pipelines.values())]


def judge_freshness(pipelines: Iterable[Pipeline] | None = None) -> list[str]:
    """Open an incident for each stream that is behind, and close it for each that is not; the names of those behind."""
    if not settings().freshness:
        return []
    before = now_ms() - millis(parse_duration(settings().freshness, field="TALLY_FRESHNESS"))
    stale = []
    for pipeline in pipelines if pipelines is not None else catalogue().pipelines.values():
        if streams.wanted(pipeline.name)["state"] != "running":
            incidents.close(pipeline.name, STALE, done="a person stopped the stream")
            continue
        try:
            newest = ledger.newest(pipeline.name, pipeline.version)
            count = waiting(pipeline, newest, lambda topic: kafka.offsets_before(topic, before, kafka.HURRY))
        except TallyError as error:
            if error.field == "TALLY_KAFKA":
                break  # nothing is known of any stream; each would wait as long for an answer
            continue
        if count:
            said = f"{count:,} records that came before {iso(from_millis(before))} are not in its table"
            promise = f"promised: within {settings().freshness}"
            incidents.report(pipeline.name, STALE, f"{said} ({promise})", cure="tally status says why, and what to do")
            stale.append(pipeline.name)
        else:
            incidents.close(pipeline.name, STALE, done="the stream has caught up")
    return stale


def statuses() -> list[Status]:
    """One for each pipeline of the catalogue, in order of name; a broken definition has one too."""
    known = catalogue()
    found = [status(pipeline) for pipeline in known.pipelines.values()]
    found += [broken(name, fault) for name, fault in known.broken.items()]
    return sorted(found, key=lambda one: one.health.pipeline)


def status(pipeline: Pipeline) -> Status:
    """The status of one pipeline, as far as control store and Kafka tell."""
    newest = int((streams.stream(pipeline.name) or {}).get("newest_window", 0))
    counts = seals.counts(pipeline.name, pipeline.version)
    return Status(
        health=diagnose(pipeline),
        version=pipeline.version,
        path=checkpoint.path_of(pipeline.name, pipeline.version),
        events_in=events_in(pipeline),
        newest_window=from_millis(newest) if newest > 0 else None,
        sealed=counts.get("sealed", 0),
        partial=counts.get("partial", 0),
        held=counts.get("held", 0),
        explained=seals.explained(pipeline.name, pipeline.version),
    )


def broken(name: str, fault: TallyError) -> Status:
    """The status of a pipeline of which nothing can be known until its file is mended."""
    health = Health(
        pipeline=name,
        state="failed",
        reason=f"its definition cannot be loaded: {str(fault).splitlines()[0]}",
        lag_records=None,
        watermark=None,
        freshness_seconds=None,
        micro_batch_seconds=None,
        sealed_to=None,
        unexplained=0,
        next_step=f"{fault.cure or 'mend the file'}; tally check shows every fault",
        watcher_seconds=None,
    )
    return Status(health=health)


def events_in(pipeline: Pipeline) -> int:
    """Records that the stream took from Kafka; a generation's micro-batches leave no offset out between them."""
    total = 0
    for oldest, newest in ledger.spans(pipeline.name, pipeline.version):
        for topic, partitions in newest.ranges.items():
            for partition, (begin, end) in partitions.items():
                total += end - oldest.ranges.get(topic, {}).get(partition, (begin, end))[0]
    return total
