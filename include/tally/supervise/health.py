"""How each stream is, for people and scripts: the verdict on it, its lag, its watermark, and what of it is sealed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tally.catalog.duration import from_millis, iso
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import ledger, runs, seals, streams
from tally.control.store import now_ms
from tally.errors import TallyError
from tally.supervise import launch
from tally.supervise.look import look as look_at
from tally.supervise.verdict import Signs, State, verdict
from tally.supervise.watch import watcher

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


def diagnose(pipeline: Pipeline | str) -> Health:
    """The health of one pipeline's stream; Kafka not answering makes the lag unknown, not the answer fail."""
    if isinstance(pipeline, str):
        pipeline = catalogue().pipeline(pipeline)
    newest = ledger.newest(pipeline.name, pipeline.version)
    end = seals.sealed_to(pipeline.name, pipeline.version)
    signs = look(pipeline, newest)
    found = verdict(signs)
    fresh = float(signs.stream.get("freshness", -1.0))
    return Health(
        pipeline=pipeline.name,
        state=found.state,
        reason=found.reason,
        lag_records=signs.lag,
        watermark=from_millis(newest.watermark) if newest and newest.watermark > 0 else None,
        freshness_seconds=round(fresh, 3) if fresh >= 0 else None,
        sealed_to=None if end is None else from_millis(end),
        unexplained=unexplained(pipeline),
        next_step=found.next_step,
        watcher_seconds=None if signs.watcher_silent is None else round(signs.watcher_silent / 1000, 1),
    )


def look(pipeline: Pipeline, newest: ledger.MicroBatch | None) -> Signs:
    """Gather the signs; nothing is changed."""
    now = now_ms()
    row = streams.stream(pipeline.name) or {}
    app = row.get("app") or launch.APP
    driver, seen = streams.driver(app) or {}, watcher()
    mine = row.get("version") == pipeline.version
    progressed = max(int(row.get("progressed_at", 0)), newest.committed_at if newest and mine else 0)
    return Signs(
        pipeline=pipeline.name,
        version=pipeline.version,
        wanted=streams.wanted(pipeline.name),
        lives=look_at(app).lives,
        driver_age=now - int(driver["launched_at"]) if driver else None,
        silent=now - int(driver["heartbeat_at"]) if driver else None,
        deaths=int(driver.get("deaths", 0)),
        driver_retry_at=int(driver.get("retry_at", 0)),
        last_words=str(driver.get("last_words", "")),
        stream=row,
        progress_age=now - progressed if progressed else None,
        lag=lag(pipeline, newest),
        watcher_silent=seen.silent if seen else None,
        log=driver.get("log") or str(launch.log_path(app)),
        now=now,
    )


def lag(pipeline: Pipeline, newest: ledger.MicroBatch | None) -> int | None:
    """Committed records that no micro-batch of this version holds yet; None when Kafka does not answer."""
    from tally.sources.kafka import HURRY, begin_offsets, end_offsets

    total = 0
    if time.monotonic() - silent_since.get("Kafka", -ASK_AGAIN) < ASK_AGAIN:
        return None
    try:
        for topic in pipeline.reads:
            applied = newest.ends(topic.name) if newest else {}
            begin = begin_offsets(topic.name, HURRY)
            for partition, end in end_offsets(topic.name, HURRY).items():
                total += max(0, end - applied.get(partition, begin.get(partition, 0)))
    except TallyError as error:
        if error.field == "TALLY_KAFKA":  # the others' lag is not asked for at once: each would wait as long
            silent_since["Kafka"] = time.monotonic()
        return None
    return total


def unexplained(pipeline: Pipeline) -> int:
    """Events without a cause in the comparisons that slots are now held by, or in the newest that was not sealed."""
    numbers = seals.held_by(pipeline.name, pipeline.version)
    newest = runs.reconciliation_history(pipeline.name, limit=1)
    numbers |= {row["id"] for row in newest if row["verdict"] == "held" and row["version"] == pipeline.version}
    return sum(int((row or {}).get("summary", {}).get("unexplained", 0)) for row in map(runs.reconciliation, numbers))


def diagnose_all(pipelines: Iterable[Pipeline] | None = None) -> list[Health]:
    """The health of every pipeline of the catalogue, or of those given."""
    return [diagnose(pipeline) for pipeline in (pipelines or catalogue().pipelines.values())]
