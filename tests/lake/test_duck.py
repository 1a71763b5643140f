"""What DuckDB prints by itself would stand before the one document of `--json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tally.lake.duck import connected
from tally.sources.records.plain import duck


@pytest.mark.parametrize("made", [connected, duck])
def test_no_bar_is_drawn_over_what_is_answered(made: Callable[[], Any]) -> None:
    assert made().execute("SELECT current_setting('enable_progress_bar')").fetchall() == [(False,)]


def test_times_are_those_of_utc() -> None:
    assert connected().execute("SELECT TIMESTAMPTZ '2026-01-01 12:00:00+00'::VARCHAR").fetchall() == [
        ("2026-01-01 12:00:00+00",)
    ]
