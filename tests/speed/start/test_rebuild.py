"""Who rebuilds a stream is its one writer first, over machines too."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tally.base.errors import AnswerIsNo
from tally.control import leases
from tally.host import lock
from tally.speed.start import rebuild


def test_a_driver_on_another_machine_is_not_rebuilt_under(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    pipeline: Any = SimpleNamespace(name="trips", version="v1")
    monkeypatch.setenv("TALLY_HOST", "east")
    theirs, over = leases.take("speed/trips/v1"), threading.Event()

    def beats() -> None:
        while not over.wait(0.2):
            leases.beat(theirs)

    thread = threading.Thread(target=beats)
    thread.start()
    monkeypatch.setenv("TALLY_HOST", "west")
    try:
        with pytest.raises(AnswerIsNo, match=r"its stream runs: is written by process \d+ on east") as refused:
            rebuild.hold(pipeline)
        assert "tally stop trips" in (refused.value.cure or "")
    finally:
        over.set()
        thread.join()
    leases.release(theirs)
    with rebuild.hold(pipeline):
        assert lock.is_held(lock.table_path("speed", "trips", "v1"))
