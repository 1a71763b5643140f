"""A batch of few records starts a JVM with one compiler: the second one would take more than it gives."""

from __future__ import annotations

from typing import Any

import pytest

from tally.control.runs import Ingested
from tally.jobs import archive


class Source:
    name = "rides"


def ingested(seq: int, start: int, end: int) -> Ingested:
    told: dict[str, Any] = {"archived": end - start, "quarantined": {}, "gaps": 0, "delta_version": seq}
    return Ingested(topic="rides", seq=seq, ranges={0: (start, end), 1: (0, 10)}, committed_at=0, **told)


@pytest.mark.parametrize(
    ("history", "end", "few"),
    [
        ([], archive.FEW_RECORDS, True),  # Kafka begins at 100, and nothing is archived
        ([], archive.FEW_RECORDS + 101, False),
        ([ingested(0, 50, 80), ingested(1, 80, 200)], archive.FEW_RECORDS + 40, True),
        ([ingested(0, 50, 80), ingested(1, 80, 200)], archive.FEW_RECORDS + 41, False),
    ],
)
def test_what_is_archived_and_what_waits_decides(
    monkeypatch: pytest.MonkeyPatch, history: list[Ingested], end: int, few: bool
) -> None:
    topic: Any = Source()
    monkeypatch.setattr(archive.runs, "ingest_history", lambda _: history)
    monkeypatch.setattr(archive.kafka, "begin_offsets", lambda _: {0: 100, 1: 0})
    monkeypatch.setattr(archive.kafka, "end_offsets", lambda _: {0: end, 1: 10 if history else 0})
    assert (archive.known(topic) <= archive.FEW_RECORDS) is few


def test_an_archive_run_counts_what_waits_and_a_restatement_what_is_archived(monkeypatch: pytest.MonkeyPatch) -> None:
    topic: Any = Source()
    ranges = [{0: (50, 80), 1: (0, 10)}, {0: (80, 200), 1: (10, 10)}]
    told: dict[str, Any] = {"topic": "rides", "archived": 1, "quarantined": {}, "gaps": 0, "delta_version": 1}
    history = [Ingested(seq=seq, ranges=one, committed_at=0, **told) for seq, one in enumerate(ranges)]
    monkeypatch.setattr(archive.runs, "ingest_history", lambda _: history)
    monkeypatch.setattr(archive.kafka, "end_offsets", lambda _: {0: 230, 1: 15})
    assert (archive.taken(topic), archive.waiting(topic)) == (160, 35)
