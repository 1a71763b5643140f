"""A broker of its own for tests that kill it: small, on free ports, and gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.embedded.broker import down


@pytest.fixture
def own_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A second TALLY_HOME with one topic; whatever runs for it is stopped."""
    catalog = tmp_path / "catalog"
    (catalog / "pipelines").mkdir(parents=True)
    (catalog / "topics.py").write_text(
        "from tally import topic\n"
        'things = topic("things", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="1 minute")\n'
    )
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TALLY_CATALOG", str(catalog))
    monkeypatch.setenv("TALLY_KAFKA_HEAP", "160m")
    monkeypatch.delenv("TALLY_KAFKA_PORT", raising=False)
    yield tmp_path / "home"
    down()
