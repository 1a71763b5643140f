"""A wish is granted when it is, and not before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tally.base.errors import AnswerIsNo
from tally.control import streams
from tally.host import lock
from tally.supervise import desired_state


def test_a_stream_of_an_older_version_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    known = SimpleNamespace(pipeline=lambda name: SimpleNamespace(name=name, version="v2"))
    monkeypatch.setattr(desired_state, "catalogue", lambda: known)
    monkeypatch.setattr(desired_state, "STOP_SECONDS", 0.3)
    streams.show("trips", version="v1", app="tally", state="running")
    with lock.hold(lock.table_path("speed", "trips", "v1")), pytest.raises(AnswerIsNo, match="has not stopped"):
        desired_state.stop("trips", by="test", why="")
    assert "nobody writes" in desired_state.stop("trips", by="test", why="").said
