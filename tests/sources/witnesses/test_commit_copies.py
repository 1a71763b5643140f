"""The control store's copies of ingests and the archive's own words: where they part, nothing goes on. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tally.base.errors import AnswerIsNo
from tally.catalog.declare import topic
from tally.control import manifests
from tally.control.runs import Ingested
from tally.reconcile.conservation import joined
from tally.sources.archive import Ingest
from tally.sources.witnesses import commit_copies

rides = topic("rides", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="10 minutes")


def said(**ranges: Any) -> Ingest:
    words: dict[str, Any] = {"topic": "rides", "archived": 1, "quarantined": {}, "gaps": 0, "delta_version": 3}
    return Ingest(seq=1, ranges={int(p[1:]): tuple(r) for p, r in ranges.items()}, **words)


@pytest.fixture(autouse=True)
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    row = {"topic": "rides", "seq": 1, "ranges": {"0": [10, 25], "1": [4, 9]}, "archived": 1, "quarantined": {},
           "gaps": 0, "delta_version": 3, "committed_at": 0}  # fmt: skip
    manifests.record([], [row])


def test_the_same_offsets_are_gone_on_from() -> None:
    commit_copies.check_last(rides, said(p0=(10, 25), p1=(4, 9)))


def test_other_offsets_are_named() -> None:
    with pytest.raises(AnswerIsNo, match=r"topic rides, partition 1, offsets \(4, 12\) by its commit.*\(4, 9\) by the"):
        commit_copies.check_last(rides, said(p0=(10, 25), p1=(4, 12)))


@pytest.mark.parametrize(
    ("ranges", "holds"),
    [
        ([{0: (0, 10)}, {0: (10, 25), 1: (4, 9)}, {0: (25, 25), 1: (9, 12)}], True),
        ([{0: (0, 10)}, {0: (13, 25)}], False),
        ([{0: (0, 10)}, {0: (7, 25)}], False),
    ],
)
def test_ingests_follow_on_one_another(ranges: list[dict[int, tuple[int, int]]], holds: bool) -> None:
    counts: dict[str, Any] = {"archived": 1, "quarantined": {}, "gaps": 0, "delta_version": 3, "committed_at": 0}
    history = [Ingested(topic="rides", seq=at, ranges=one, **counts) for at, one in enumerate(ranges)]
    assert joined(history) is holds
