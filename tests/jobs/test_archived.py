"""What Airflow's batches restate is archived by then: a range that is not is refused before any Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tally.base.duration import parse_instant, to_millis
from tally.base.errors import AnswerIsNo, TallyError
from tally.control import runs
from tally.jobs import batch

RANGE = "2026-11-01T10:00:00Z", "2026-11-01T10:05:00Z"


class Started(Exception):
    """A session was asked for."""


@pytest.fixture(autouse=True)
def own_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: Any, **__: Any) -> None:
        raise Started

    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.setattr(batch, "session", session)


def test_a_range_whose_end_an_archive_has_not_reached_is_refused_for_now() -> None:
    end = to_millis(parse_instant(RANGE[1]))
    runs.note_reached("rides", end)
    runs.note_reached("payments", end - 1)
    with pytest.raises(TallyError, match="archive/payments has reached 2026-11-01T10:04:59") as refused:
        batch.batch("paid_rides", *RANGE, archived=True)
    assert refused.value.pipeline == "paid_rides" and "archive__payments" in str(refused.value.cure)
    assert not isinstance(refused.value, AnswerIsNo), "a task that is tried again may find it there"
    runs.note_reached("payments", end)
    with pytest.raises(Started):
        batch.batch("paid_rides", *RANGE, archived=True)
    with pytest.raises(Started):  # a window that goes on beyond the range waits for no later moment
        batch.batch("cab_shifts", *RANGE, archived=True)
