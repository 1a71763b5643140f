"""A batch of few records starts a JVM with one compiler: the second one would take more than it gives."""

from __future__ import annotations

from typing import Any

import pytest

from tally.control.runs import Ingested
from tally.jobs import batch


class Source:
    name = "rides"


class Pipeline:
    reads = (Source(),)


def ingested(seq: int, start: int, end: int) -> Ingested:
    told: dict[str, Any] = {"archived": end - start, "quarantined": {}, "gaps": 0, "delta_version": seq}
    return Ingested(topic="rides", seq=seq, ranges={0: (start, end), 1: (0, 10)}, committed_at=0, **told)


@pytest.mark.parametrize(
    ("history", "end", "few"),
    [
        ([], batch.FEW_RECORDS, True),  # Kafka begins at 100, and nothing is archived
        ([], batch.FEW_RECORDS + 101, False),
        ([ingested(0, 50, 80), ingested(1, 80, 200)], batch.FEW_RECORDS + 40, True),
        ([ingested(0, 50, 80), ingested(1, 80, 200)], batch.FEW_RECORDS + 41, False),
    ],
)
def test_what_is_archived_and_what_waits_decides(
    monkeypatch: pytest.MonkeyPatch, history: list[Ingested], end: int, few: bool
) -> None:
    monkeypatch.setattr(batch.runs, "ingest_history", lambda _: history)
    monkeypatch.setattr(batch.kafka, "begin_offsets", lambda _: {0: 100, 1: 0})
    monkeypatch.setattr(batch.kafka, "end_offsets", lambda _: {0: end, 1: 10 if history else 0})
    assert batch.are_few(Pipeline()) is few  # type: ignore[arg-type]
