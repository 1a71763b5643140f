"""How one stream is, from its signs: one state, one reason, and what to do next. Progress decides, not the pid."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from tally.base.safe_text import printable
from tally.lake import memory
from tally.supervise.policy import SILENCE_MS

State = Literal[
    "healthy", "starting", "catching_up", "idle", "stalled", "hung", "dead", "crash_looping", "data_lost", "failed",
    "outdated", "paused", "stopping", "stopped",
]  # fmt: skip

# A new driver needs a JVM, its checkpoints and a first micro-batch before it shows progress: 30 s on two busy cores.
STARTING_MS = 180_000
# No micro-batch for so long although records wait: longer than any fold or large first batch that was measured.
STALLED_MS = 120_000
# A newest batch that held records older than this is behind, and so is one that ended longer ago while records wait;
# below it the pace of micro-batches itself is seen.
BEHIND_SECONDS = 60.0
# No micro-batch for so long, and nobody can ask Kafka whether any is due: a restarting broker is back sooner.
UNKNOWN_MS = 30_000
IDLE_MS = 30_000
# The watch sees a dead driver within seconds; without one the slow clock does.
SOON, BY_CLOCK = "the streams DAG starts it within seconds", "no watcher: the streams DAG looks every five minutes"
WATCHED_MS = 30_000
# A watcher's order is followed within half a minute; later, nobody follows it.
OVERDUE_MS = 120_000
OVERDUE = "the streams DAG should have started it by now: is Airflow's scheduler up, and the DAG not paused?"


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What the verdict is made from; ages in milliseconds, None where there is nothing to age."""

    pipeline: str
    version: str
    wanted: dict[str, Any]  # state, by, why, at
    lives: bool
    driver_age: int | None
    silent: int | None
    deaths: int
    driver_retry_at: int  # 0: none is set
    last_words: str
    stream: dict[str, Any]  # what its driver last wrote of it, {} where none ever did
    progress_age: int | None
    lag: int | None
    watcher_silent: int | None
    log: str
    now: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One state, why, and the next step."""

    state: State
    reason: str
    next_step: str


def verdict(signs: Signs) -> Verdict:
    """The first rule that fits decides."""
    for rule in (at_rest, given_up, without_driver, hung, dying, failing, outdated, moving):
        found = rule(signs)
        if found is not None:
            return found
    raise AssertionError("the last rule always fits")


def at_rest(signs: Signs) -> Verdict | None:
    """A person does not want it to run."""
    wish = str(signs.wanted["state"])
    if wish == "running":
        return None
    by = f"by {signs.wanted['by']}" if signs.wanted["by"] else "by a person"
    since = f" since {clock(signs.wanted['at'], day=True)}" if signs.wanted["at"] else ""
    reason = f"{by}{since}" + (f": {printable(signs.wanted['why'])}" if signs.wanted["why"] else "")
    if signs.lives and signs.stream.get("state") in ("running", "starting"):
        return Verdict(state="stopping", reason=f"its last micro-batch ends; {wish} {reason}", next_step="wait")
    resume = f"tally resume {signs.pipeline}"
    return Verdict(state="paused" if wish == "paused" else "stopped", reason=reason, next_step=resume)


def given_up(signs: Signs) -> Verdict | None:
    """What does not pass by itself."""
    state, said = signs.stream.get("state"), str(signs.stream.get("reason", ""))
    doctor, again = f"tally doctor {signs.pipeline}", f"tally restart {signs.pipeline}"
    if state == "data_lost":
        reason = said or "records are gone that it had not read"
        return Verdict(state="data_lost", reason=reason, next_step=f"{doctor}; log: {signs.log}")
    if state == "gave_up":
        tries = int(signs.stream.get("failures", 0))
        reason = f"given up after {tries} {'try' if tries == 1 else 'tries'}: {said}"
        return Verdict(state="failed", reason=reason, next_step=f"{doctor}; once that is mended: {again}")
    return None


def without_driver(signs: Signs) -> Verdict | None:
    if signs.lives:
        return None
    watched = signs.watcher_silent is not None and signs.watcher_silent < WATCHED_MS
    overdue = watched and (signs.silent or 0) > OVERDUE_MS
    by_itself = OVERDUE if overdue else SOON if watched else BY_CLOCK
    then = f"{by_itself}, or: tally restart {signs.pipeline}; log: {signs.log}"
    if signs.driver_age is None:
        return Verdict(state="dead", reason="no driver was ever started", next_step=then)
    if signs.deaths > 1:
        return looping(signs, next_try(signs.driver_retry_at))
    words = f": {signs.last_words}" if signs.deaths and signs.last_words else ""
    reason = f"its driver is gone ({seconds(signs.silent)} silent){words}"
    return Verdict(state="dead", reason=reason, next_step=then)


def dying(signs: Signs) -> Verdict | None:
    """Its driver lives, as those lived that died before it: only a micro-batch of its own tells the difference."""
    if signs.deaths < 2 or (signs.progress_age is not None and signs.progress_age < (signs.driver_age or 0)):
        return None
    return looping(signs, "; the next one is being tried now")


def looping(signs: Signs, then: str) -> Verdict:
    words = f"; the last one said: {signs.last_words}" if signs.last_words else ""
    reason = f"{signs.deaths} drivers in a row died before every stream went on{words}{then}"
    cure = memory.cure(signs.last_words) or f"mend what {signs.log} names"
    return Verdict(state="crash_looping", reason=reason, next_step=cure)


def hung(signs: Signs) -> Verdict | None:
    age = signs.driver_age or 0
    if signs.silent is None or signs.silent <= SILENCE_MS or age <= SILENCE_MS:
        return None
    reason = f"its driver lives but has said nothing for {seconds(signs.silent)}"
    then = f"the streams DAG replaces it, or: tally restart {signs.pipeline}"
    return Verdict(state="hung", reason=reason, next_step=then)


def failing(signs: Signs) -> Verdict | None:
    """Its query ended by itself, and has not ended a micro-batch since."""
    if not signs.stream.get("failures"):
        return None
    times, said = int(signs.stream.get("failures", 0)), str(signs.stream.get("reason", "")) or "its query ended"
    at = int(signs.stream.get("retry_at", 0))
    then = next_try(at) if at > signs.now else "; being tried now"
    if times > 1:
        reason = f"failed {times} times in a row: {said}{then}"
        return Verdict(state="crash_looping", reason=reason, next_step=f"mend what it names; log: {signs.log}")
    return Verdict(state="starting", reason=f"its query ended: {said}{then}", next_step="wait")


def outdated(signs: Signs) -> Verdict | None:
    running = signs.stream.get("version")
    if not running or running == signs.version or signs.stream.get("state") != "running":
        return None
    reason = f"it runs version {running}, the file now says {signs.version}"
    return Verdict(state="outdated", reason=reason, next_step=f"tally restart {signs.pipeline}: the new version begins")


def moving(signs: Signs) -> Verdict:
    """Its driver lives and its query has not failed: how does it get on?"""
    age = signs.driver_age or 0
    waited = signs.progress_age if signs.progress_age is not None else age
    records = "unknown lag" if signs.lag is None else f"{signs.lag:,} records behind"
    idle_since_start = signs.lag == 0 and signs.stream.get("state") == "running"
    if signs.lag is None and waited > UNKNOWN_MS and age > UNKNOWN_MS:
        reason = f"Kafka does not answer, and no micro-batch for {seconds(waited)}: nobody knows what waits"
        cure = "look at the brokers, and at the network on the way to them; once they answer it goes on by itself"
        return Verdict(state="stalled", reason=reason, next_step=cure)
    if (signs.progress_age is None or signs.progress_age > age) and age < STARTING_MS and not idle_since_start:
        return Verdict(state="starting", reason="its first micro-batch is not done yet", next_step="wait a minute")
    if signs.lag and waited > STALLED_MS and age > STALLED_MS:
        reason = f"{records}, and no micro-batch for {seconds(waited)}"
        return Verdict(state="stalled", reason=reason, next_step=f"look at {signs.log}")
    if signs.lag and min(waited, age) > BEHIND_SECONDS * 1000:
        reason = f"{records}, and no micro-batch for {seconds(waited)}"
        return Verdict(state="catching_up", reason=reason, next_step=f"wait; after two minutes look at {signs.log}")
    if signs.lag and float(signs.stream.get("freshness", -1.0)) > BEHIND_SECONDS:
        return Verdict(state="catching_up", reason=f"{records}; {eta(signs)}", next_step="wait")
    if signs.lag == 0 and waited > IDLE_MS:
        reason = f"all records are applied, and none came for {seconds(waited)}"
        return Verdict(state="idle", reason=reason, next_step="nothing to do")
    reason = records if signs.lag is None or signs.lag else "all records are applied"
    return Verdict(state="healthy", reason=reason, next_step="nothing to do")


def eta(signs: Signs) -> str:
    """When it will have caught up, if it goes on as in its last few micro-batches."""
    gaining = float(signs.stream.get("gaining", 0.0))
    if not signs.lag or gaining == 0.0:
        return "too early to say when it has caught up"
    if gaining < 0:
        return f"it falls behind by {-gaining:,.0f} records a second"
    left = signs.lag / gaining
    return f"caught up in about {left / 60:.0f} min" if left >= 90 else f"caught up in about {left:.0f} s"


def next_try(at: int) -> str:
    return f"; next try at {clock(at)}" if at else ""


def clock(at_ms: int, *, day: bool = False) -> str:
    """A moment in UTC as a person reads it."""
    return datetime.fromtimestamp(int(at_ms) / 1000, UTC).strftime("%Y-%m-%d %H:%MZ" if day else "%H:%M:%SZ")


def seconds(age_ms: int | None) -> str:
    return "never" if age_ms is None else f"{max(age_ms, 0) // 1000} s"
