"""`tally status`: a table for a person with the columns of --json, and a line for each stream that needs somebody."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tally.base.errors import TallyError
from tally.cli.status import COLUMNS, print_status, table_of, watched
from tally.supervise.status import Health, Status, broken

TEN = datetime(2026, 11, 1, 10, tzinfo=UTC)
HEALTH = Health(
    pipeline="demand", state="healthy", reason="it reads", lag_records=1234, watermark=TEN,
    freshness_seconds=1.25, micro_batch_seconds=0.4, sealed_to=None, unexplained=0,
    next_step="nothing", watcher_seconds=2.0,
)  # fmt: skip
GOOD = Status(
    health=HEALTH, version="v1", events_in=5678, newest_window=TEN + timedelta(minutes=5), sealed=3, held=1
)  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], *rows: Status) -> str:
    print_status(rows)
    return capsys.readouterr().out


def test_the_document_is_flat_with_instants_as_text() -> None:
    said: dict[str, Any] = json.loads(json.dumps(GOOD.as_json()))
    assert set(COLUMNS) <= set(said) and "health" not in said
    assert (said["watermark"], said["newest_window"]) == ("2026-11-01T10:00:00Z", "2026-11-01T10:05:00Z")
    assert (said["sealed_to"], said["events_in"], said["sealed"], said["partial"]) == (None, 5678, 3, 0)


def test_a_definition_that_does_not_load_has_every_field_too() -> None:
    bad = broken("spoilt", TallyError("no such column", cure="mend it"))
    assert set(bad.as_json()) == set(GOOD.as_json())
    assert (bad.health.state, bad.version, bad.newest_window) == ("failed", None, None)
    assert "no such column" in bad.health.reason and bad.health.next_step.startswith("mend it")


def test_a_table_shows_partial_slots_where_there_are_any() -> None:
    assert "partial" not in [column.header for column in table_of([GOOD]).columns]
    assert "partial" in [column.header for column in table_of([GOOD, replace(GOOD, partial=2)]).columns]


def test_numbers_are_read_by_people(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, GOOD)
    for text in ("5,678", "1,234", "2026-11-01 10:00:00", "–", "1.2"):
        assert text in shown


def test_a_micro_batch_that_does_not_keep_its_pace_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "micro-batch" not in printed(capsys, GOOD)
    slow = replace(GOOD, health=replace(HEALTH, micro_batch_seconds=7.27))
    assert "demand: a micro-batch takes 7.3 s, where TALLY_TRIGGER_SECONDS says 1" in printed(capsys, GOOD, slow)


def test_only_a_stream_that_needs_somebody_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert "it reads" not in printed(capsys, GOOD)
    dead = replace(GOOD, health=replace(HEALTH, state="dead", reason="no driver", next_step="look at the log"))
    assert "demand: no driver; next: look at the log" in printed(capsys, GOOD, dead)


@pytest.mark.parametrize(
    ("silent", "words"),
    [(None, "nobody starts a stream that dies"), (2.0, "the watcher looked 2 s ago"), (3600.0, "silent for 3,600 s")],
)
def test_the_last_line_says_whether_somebody_watches(silent: float | None, words: str) -> None:
    assert words in watched(silent)
