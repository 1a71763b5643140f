"""A process that has a session reckons in UTC, wherever it stands."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import pytest

from tally.lake.session import in_utc

LAST = 253_402_300_799  # 9999-12-31T23:59:59Z


def test_the_last_second_of_all_is_a_time_in_every_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        with pytest.raises((ValueError, OverflowError)):
            datetime.fromtimestamp(LAST)
        in_utc()
        assert datetime.fromtimestamp(LAST).astimezone() == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    finally:
        if before is None:
            os.environ.pop("TZ", None)
        else:
            os.environ["TZ"] = before
        time.tzset()
