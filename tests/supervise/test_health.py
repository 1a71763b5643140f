"""The verdict on a stream: the first rule that fits decides."""

from __future__ import annotations

from typing import Any

import pytest

from tally.supervise.health import Signs, verdict

FINE: dict[str, Any] = {
    "wanted": "running", "wanted_why": "", "lives": True, "driver_age": 600_000, "silent": 2_000,
    "stream": {"state": "running", "freshness": 1.0, "reason": ""}, "progress_age": 1_000, "lag": 10, "log": "the.log",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "healthy"),
        ({"lag": 0, "progress_age": 90_000}, "idle"),
        ({"lag": None, "progress_age": 90_000}, "healthy"),
        ({"lag": 50_000, "stream": {"state": "running", "freshness": 900.0}}, "catching_up"),
        ({"lag": 50_000, "progress_age": 300_000}, "stalled"),
        ({"progress_age": None, "stream": {}, "driver_age": 20_000, "silent": 900}, "starting"),
        ({"silent": 500_000}, "hung"),
        ({"silent": 500_000, "driver_age": 10_000}, "healthy"),
        ({"stream": {"state": "failed", "reason": "records are gone"}}, "failed"),
        ({"lives": False, "stream": {"state": "failed", "reason": "x"}}, "dead"),
        ({"lives": False, "driver_age": None, "silent": None}, "dead"),
        ({"wanted": "paused", "lives": False}, "paused"),
    ],
)
def test_each_state_by_its_sign(changed: dict[str, Any], state: str) -> None:
    found, reason, next_step = verdict(Signs(**{**FINE, **changed}))
    assert found == state
    assert reason
    assert next_step


def test_a_failure_gives_the_reason_its_driver_gave() -> None:
    signs = Signs(**{**FINE, "stream": {"state": "failed", "reason": "records are gone: rides, partition 3"}})
    assert verdict(signs)[1] == "records are gone: rides, partition 3"
