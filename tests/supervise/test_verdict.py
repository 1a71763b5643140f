"""The verdict on a stream: the first rule that fits decides, and each says why and what to do."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tally.supervise.verdict import Signs, State, verdict

NOW = 1_800_000_000_000
RUNNING = {"state": "running", "freshness": 1.0, "reason": "", "version": "v1", "failures": 0}
FINE: dict[str, Any] = {
    "pipeline": "trips", "version": "v1", "wanted": {"state": "running", "by": "", "why": "", "at": 0}, "lives": True,
    "driver_age": 600_000, "silent": 2_000, "deaths": 0, "driver_retry_at": 0, "last_words": "", "stream": RUNNING,
    "progress_age": 1_000, "lag": 10, "watcher_silent": 900, "log": "the.log", "now": NOW,
}  # fmt: skip
PAUSED = {"state": "paused", "by": "ada", "why": "the broker moves", "at": NOW - 60_000}
FAILING = {**RUNNING, "state": "failed", "reason": "no disk", "failures": 1, "retry_at": NOW + 8_000}

CASES: list[tuple[dict[str, Any], State]] = [
    ({}, "healthy"),
    ({"lag": 0, "progress_age": 90_000}, "idle"),
    ({"lag": 50_000, "progress_age": 90_000}, "catching_up"),
    ({"lag": None, "progress_age": 20_000}, "healthy"),
    ({"lag": None, "progress_age": 90_000}, "stalled"),
    ({"lag": 50_000, "stream": {**RUNNING, "freshness": 900.0, "gaining": 500.0}}, "catching_up"),
    ({"lag": 50_000, "progress_age": 300_000}, "stalled"),
    ({"progress_age": None, "stream": {}, "driver_age": 20_000, "silent": 900}, "starting"),
    ({"progress_age": 500_000, "driver_age": 20_000}, "starting"),
    ({"progress_age": 500_000, "driver_age": 20_000, "lag": 0}, "idle"),
    ({"stream": FAILING}, "starting"),
    ({"stream": {**FAILING, "failures": 4}}, "crash_looping"),
    ({"stream": {**FAILING, "failures": 4, "state": "running"}}, "crash_looping"),
    ({"silent": 50_000}, "hung"),
    ({"silent": 50_000, "driver_age": 10_000}, "healthy"),
    ({"lives": False}, "dead"),
    ({"lives": False, "stream": FAILING}, "dead"),
    ({"lives": False, "driver_age": None, "silent": None}, "dead"),
    ({"lives": False, "deaths": 1}, "dead"),
    ({"lives": False, "deaths": 3, "driver_retry_at": NOW + 8_000, "last_words": "no memory"}, "crash_looping"),
    ({"stream": {**RUNNING, "state": "data_lost", "reason": "rides, partition 3, [10, 20)"}}, "data_lost"),
    ({"stream": {**RUNNING, "state": "gave_up", "reason": "no checkpoint", "failures": 3}}, "failed"),
    ({"deaths": 3, "driver_age": 9_000, "progress_age": 90_000, "last_words": "no memory"}, "crash_looping"),
    ({"deaths": 3, "driver_age": 9_000, "progress_age": 1_000}, "healthy"),
    ({"version": "v2"}, "outdated"),
    ({"version": "v2", "lives": False}, "dead"),
    ({"wanted": PAUSED, "lives": False}, "paused"),
    ({"wanted": PAUSED, "stream": {**RUNNING, "state": "paused"}}, "paused"),
    ({"wanted": PAUSED}, "stopping"),
    ({"wanted": {**PAUSED, "state": "stopped"}, "lives": False}, "stopped"),
]


@pytest.mark.parametrize(("changed", "state"), CASES)
def test_each_state_by_its_sign(changed: dict[str, Any], state: str) -> None:
    found = verdict(Signs(**{**FINE, **changed}))
    assert found.state == state
    assert found.reason
    assert found.next_step


def test_every_state_has_its_case() -> None:
    assert {state for _, state in CASES} == set(get_args(State))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"wanted": PAUSED, "lives": False}, ["by ada", "since 2027-01-15 07:59Z", "the broker moves"]),
        ({"stream": {**RUNNING, "state": "data_lost", "reason": "rides, partition 3, [10, 20)"}}, ["partition 3"]),
        ({"stream": {**FAILING, "failures": 4}}, ["4 times", "no disk", "next try at 08:00:08Z"]),
        ({"stream": {**FAILING, "retry_at": NOW - 1}}, ["being tried now"]),
        (
            {"lives": False, "deaths": 3, "driver_retry_at": NOW + 8_000, "last_words": "no memory"},
            ["3 drivers", "no memory", "next try at 08:00:08Z"],
        ),
        ({"version": "v2"}, ["version v1", "v2"]),
        ({"lag": None, "progress_age": 90_000}, ["Kafka does not answer", "no micro-batch for 90 s"]),
        ({"lives": False, "deaths": 1, "last_words": "out of memory: full"}, ["out of memory: full"]),
        ({"lag": 60_000, "stream": {**RUNNING, "freshness": 900.0, "gaining": 500.0}}, ["60,000", "about 2 min"]),
        ({"lag": 60_000, "stream": {**RUNNING, "freshness": 900.0, "gaining": -20.0}}, ["falls behind by 20 records"]),
    ],
)
def test_the_reason_says_what_a_person_needs(changed: dict[str, Any], words: list[str]) -> None:
    reason = verdict(Signs(**{**FINE, **changed})).reason
    assert all(word in reason for word in words), reason


def test_a_dead_stream_says_who_will_start_it() -> None:
    assert "within seconds" in verdict(Signs(**{**FINE, "lives": False})).next_step
    assert "every five minutes" in verdict(Signs(**{**FINE, "lives": False, "watcher_silent": 60_000})).next_step
    assert "every five minutes" in verdict(Signs(**{**FINE, "lives": False, "watcher_silent": None})).next_step
