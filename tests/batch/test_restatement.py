"""Words of a restatement that cannot be true are refused, whichever of them was changed. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tally.base.errors import AnswerIsNo
from tally.batch.restatement import Restatement, check_words
from tally.catalog.declare import pipeline, topic, tumbling
from tally.control import manifests

MINUTE = 60_000
rides = topic("rides", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="10 minutes")


@pipeline(reads=rides, window=tumbling("1 minute"), key="id")
def demand(rides):  # type: ignore[no-untyped-def]
    return rides


def said(covered: int, seq: int, ends: int, **other: Any) -> Restatement:
    words: dict[str, Any] = {
        "covered": [(0, covered * MINUTE)], "stale": [], "through": {"rides": seq}, "seen": {"rides": seq},
        "versions": {"rides": seq}, "redecoded": {"rides": seq}, "ends": {"rides": {0: ends}},
        "ranges": [((covered - 1) * MINUTE, covered * MINUTE)], "delta_version": seq,
    }  # fmt: skip
    return Restatement(**{**words, **other})


BEFORE, NEWEST = said(3, 0, 10), said(5, 1, 25)


@pytest.fixture(autouse=True)
def ingested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    rows = [
        {"topic": "rides", "seq": seq, "ranges": {"0": ranges}, "archived": 1, "quarantined": {}, "gaps": 0,
         "delta_version": seq, "committed_at": 0}
        for seq, ranges in enumerate([[0, 10], [10, 25]])
    ]  # fmt: skip
    manifests.record([], rows)


def test_what_was_written_is_taken() -> None:
    check_words(demand, NEWEST, BEFORE)
    check_words(demand, BEFORE, None)
    check_words(demand, replace(NEWEST, through={"rides": 0}), BEFORE)  # a restatement of just one range


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"covered": []}, "was stated, and is not covered"),
        ({"covered": [(4 * MINUTE, 5 * MINUTE)]}, r"\[1970-01-01T00:00:00Z, 1970-01-01T00:03:00Z\) was stated"),
        ({"through": {"rides": 5}}, "stated through ingest 5, and seen up to 1"),
        ({"through": {"rides": 5}, "seen": {"rides": 5}}, "seen up to ingest 5, and the archive has 1"),
        ({"seen": {"rides": 1}, "ends": {"rides": {0: 99}}}, "ended at .0: 99., and the archive says .0: 25."),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(AnswerIsNo, match=says) as told:
        check_words(demand, replace(NEWEST, **changed), BEFORE)
    assert told.value.pipeline == "demand" and "tally backfill demand --from" in str(told.value.cure)
