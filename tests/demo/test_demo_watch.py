"""A demo that ends leaves no thread at work: an interpreter that ends beneath one that loads a library may crash."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from unittest import mock

import pytest

from tally.base.errors import AnswerIsNo
from tally.demo.run import Demo, Show
from tally.demo.watch import Watch
from tally.embedded import broker


def test_a_demo_that_ends_waits_for_the_last_look(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = threading.Event()

    def slow_look(self: Watch) -> None:
        looking.set()
        time.sleep(1.5)

    def no_broker() -> None:
        looking.wait(60)
        raise AnswerIsNo("no broker today")

    monkeypatch.setattr(Watch, "renew", slow_look)
    monkeypatch.setattr(broker, "up", no_broker)
    with mock.patch.dict(os.environ), pytest.raises(AnswerIsNo, match="no broker today"):
        Demo(Show(), lambda line: None, live=False).run()
    assert looking.is_set()
    assert not [thread.name for thread in threading.enumerate() if thread.name in ("watch", "bring-up")]
