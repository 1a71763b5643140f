"""Where a topic's archive begins: by what Kafka holds when it is begun, and by nothing older."""

from __future__ import annotations

from pathlib import Path

import pytest

from tally.catalog.declare import topic
from tally.control import runs
from tally.sources import beginning

RIDES = topic("rides", schema="at TIMESTAMP", event_time="at", lateness="1 minute")
RECORD = (1_790_000_000_000, True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.setattr(beginning, "first_record", lambda *_: RECORD)


def test_an_archive_that_was_put_aside_says_nothing_of_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    older = runs.Ingested(
        topic=RIDES.name, seq=0, ranges={0: (0, 7)}, archived=7, quarantined={}, gaps=0, delta_version=0, committed_at=1
    )
    monkeypatch.setattr(runs, "ingest_history", lambda _: [older])
    told = beginning.words(RIDES, {0: (7, 9), 1: (0, 3)})
    assert told["partitions"] == {0: {"first": 7, "to": 9, "broker_time": RECORD[0], "append_time": True}}


def test_a_topic_that_is_read_from_its_first_offset_has_nothing_to_miss() -> None:
    assert beginning.words(RIDES, {0: (0, 9), 1: (0, 0)})["partitions"] == {}
