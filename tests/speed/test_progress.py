"""What a micro-batch's progress says of lag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tally.speed.progress import Gain, behind


def source(latest: Any, end: Any) -> dict[str, Any]:
    return {"latestOffset": json.dumps(latest), "endOffset": json.dumps(end)}


@pytest.mark.parametrize(
    ("sources", "waiting"),
    [
        ([source({"rides": {"0": 10, "1": 20}}, {"rides": {"0": 10, "1": 5}})], 15),
        ([source({"rides": {"0": 10}}, {"rides": {"0": 10}}), source({"pay": {"0": 7}}, {"pay": {"0": 3}})], 4),
        ([source({"rides": {"0": 10, "1": 6}}, {"rides": {"0": 10}})], 6),
        ([source(None, {"rides": {"0": 10}})], None),
        ([{"description": "no offsets"}], None),
    ],
)
def test_what_waited(sources: list[dict[str, Any]], waiting: int | None) -> None:
    assert behind({"sources": sources}) == waiting


def test_the_gain_follows_the_last_few_micro_batches() -> None:
    gain = Gain()
    assert gain.seen(0, 10_000) == 0.0
    assert gain.seen(1_000, 9_000) == 1_000.0
    assert 500 < gain.seen(2_000, 8_500) < 1_000, "one slower micro-batch does not decide alone"
    for at in range(3, 20):
        gain.seen(at * 1_000, 8_500 + at * 100)
    assert -110 < gain.rate < -90
