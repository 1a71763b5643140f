"""How one stream is, from what its driver, its ledger and Kafka say: one state, one reason, and what to do next."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from tally.catalog.duration import from_millis, iso
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import ledger, runs, seals, streams
from tally.control.store import now_ms
from tally.errors import TallyError
from tally.supervise import launch, lock

State = Literal["healthy", "starting", "catching_up", "idle", "stalled", "hung", "dead", "paused", "failed"]

# A new driver needs a JVM, its checkpoints and a first micro-batch before it shows progress: 30 s on two busy cores.
STARTING_MS = 180_000
# No micro-batch for so long although records wait: longer than any fold or large first batch that was measured.
STALLED_MS = 120_000
# A newest batch that held records older than this is behind; below it the pace of micro-batches itself is seen.
BEHIND_SECONDS = 60.0
IDLE_MS = 30_000
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

    def as_dict(self) -> dict[str, Any]:
        times = {
            name: moment and iso(moment)
            for name, moment in (("watermark", self.watermark), ("sealed_to", self.sealed_to))
        }
        return {**vars(self), **times}


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What the verdict is made from; ages in milliseconds, None where there is nothing to age."""

    wanted: str
    wanted_why: str
    lives: bool
    driver_age: int | None
    silent: int | None
    stream: dict[str, Any]
    progress_age: int | None
    lag: int | None
    log: str


def diagnose(pipeline: Pipeline | str) -> Health:
    """The health of one pipeline's stream; Kafka not answering makes the lag unknown, not the answer fail."""
    if isinstance(pipeline, str):
        pipeline = catalogue().pipeline(pipeline)
    newest = ledger.newest(pipeline.name, pipeline.version)
    end = seals.sealed_to(pipeline.name, pipeline.version)
    signs = look(pipeline, newest)
    state, reason, next_step = verdict(signs)
    fresh = float(signs.stream.get("freshness", -1.0))
    return Health(
        pipeline=pipeline.name,
        state=state,
        reason=reason,
        lag_records=signs.lag,
        watermark=from_millis(newest.watermark) if newest and newest.watermark > 0 else None,
        freshness_seconds=round(fresh, 3) if fresh >= 0 else None,
        sealed_to=None if end is None else from_millis(end),
        unexplained=unexplained(pipeline),
        next_step=next_step,
    )


def look(pipeline: Pipeline, newest: ledger.MicroBatch | None) -> Signs:
    """Gather the signs; nothing is changed."""
    now = now_ms()
    row = streams.stream(pipeline.name) or {}
    app = row.get("app") or launch.APP
    driver, wanted = streams.driver(app), streams.wanted(pipeline.name)
    mine = row.get("version") == pipeline.version
    progressed = max(int(row.get("progressed_at", 0)) if mine else 0, newest.committed_at if newest else 0)
    return Signs(
        wanted=wanted["state"],
        wanted_why=wanted["why"],
        lives=lock.is_held(launch.lock_path(app)),
        driver_age=None if driver is None else now - int(driver["launched_at"]),
        silent=None if driver is None else now - int(driver["heartbeat_at"]),
        stream=row if mine else {},
        progress_age=now - progressed if progressed else None,
        lag=lag(pipeline, newest),
        log=(driver or {}).get("log") or str(launch.log_path(app)),
    )


def verdict(signs: Signs) -> tuple[State, str, str]:
    """The state that the signs add up to, why, and the next step; the first rule that fits decides."""
    said = str(signs.stream.get("reason", ""))
    age = signs.driver_age if signs.driver_age is not None else 0
    waited = signs.progress_age if signs.progress_age is not None else age
    records = "unknown lag" if signs.lag is None else f"{signs.lag:,} records behind"
    if signs.wanted == "paused":
        return "paused", signs.wanted_why or "paused by a person", "tally resume PIPELINE"
    if signs.stream.get("state") == "data_lost":
        cure = "once that is seen to: tally pause, then tally resume"
        return "failed", said or "records are gone that it had not read", f"{cure}; log: {signs.log}"
    if not signs.lives:
        why = (
            "no driver was ever started"
            if signs.driver_age is None
            else f"its driver is gone ({seconds(signs.silent)} silent)"
        )
        return "dead", why, f"the streams DAG starts it within a minute, or: tally stream; log: {signs.log}"
    if signs.stream.get("state") == "failed":
        return "failed", said or "its query ended", f"it is tried again by itself; log: {signs.log}"
    if signs.silent is not None and signs.silent > launch.SILENCE_MS and age > launch.SILENCE_MS:
        return (
            "hung",
            f"its driver lives but has said nothing for {seconds(signs.silent)}",
            "the streams DAG replaces it",
        )
    if signs.progress_age is None and age < STARTING_MS:
        return "starting", "its first micro-batch is not done yet", "wait a minute"
    if signs.lag and waited > STALLED_MS and age > STALLED_MS:
        return "stalled", f"{records}, and no micro-batch for {seconds(waited)}", f"look at {signs.log}"
    if signs.lag and float(signs.stream.get("freshness", -1.0)) > BEHIND_SECONDS:
        return "catching_up", records, "wait"
    if signs.lag == 0 and waited > IDLE_MS:
        return "idle", f"all records are applied, and none came for {seconds(waited)}", "nothing to do"
    return "healthy", records if signs.lag is None or signs.lag else "all records are applied", "nothing to do"


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
    numbers = {seal.reconciliation for seal in seals.read(pipeline.name, pipeline.version) if seal.state == "held"}
    newest = runs.reconciliation_history(pipeline.name, limit=1)
    numbers |= {row["id"] for row in newest if row["verdict"] == "held" and row["version"] == pipeline.version}
    return sum(int((row or {}).get("summary", {}).get("unexplained", 0)) for row in map(runs.reconciliation, numbers))


def diagnose_all(pipelines: Iterable[Pipeline] | None = None) -> list[Health]:
    """The health of every pipeline of the catalogue, or of those given."""
    return [diagnose(pipeline) for pipeline in (pipelines or catalogue().pipelines.values())]


def seconds(age_ms: int | None) -> str:
    return "never" if age_ms is None else f"{max(age_ms, 0) // 1000} s"
