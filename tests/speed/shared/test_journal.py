"""Who is suspected of a driver's death, who is refused for it, and who is not any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tally.base.errors import NotAgain
from tally.lake import session
from tally.speed.shared import journal as journals
from tally.speed.shared.journal import Journal

BAD, GOOD = ("bad", "v1"), ("good", "v1")
DIES = """
import os, signal, sys
from types import SimpleNamespace

from tally.speed.shared.journal import Journal

journal = Journal(sys.argv[1], lambda name: int(sys.argv[2]))
for name in ("good", "bad"):
    journal.check(SimpleNamespace(place=(name, "v1"), pipeline=SimpleNamespace(name=name)), "sales")
with journal.running(("good", "v1"), 6):
    pass
with journal.running(("bad", "v1"), 7):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def die(root: Path, restarts: int = 0) -> None:
    """A driver dies in micro-batch 7 of one pipeline, after another one's turn."""
    assert subprocess.run([sys.executable, "-c", DIES, str(root), str(restarts)]).returncode == -9


def after(root: Path, monkeypatch: pytest.MonkeyPatch, restarts: int = 0) -> Journal:
    """The journal as another driver finds it."""
    monkeypatch.setattr(journals, "ME", "another driver")
    return Journal(str(root), lambda _: restarts)


def refused(journal: Journal, place: tuple[str, str] = BAD) -> bool:
    target: Any = SimpleNamespace(place=place, pipeline=SimpleNamespace(name=place[0]))
    try:
        journal.check(target, "sales")
    except NotAgain as error:
        assert "micro-batch 7 of topic sales" in error.message and "tally restart bad" in (error.cure or "")
        return True
    return False


def test_who_is_met_twice_is_refused_and_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(tmp_path)
    one = after(tmp_path, monkeypatch)
    assert one.suspects(BAD) and not one.suspects(GOOD) and not refused(one)
    die(tmp_path)
    two = after(tmp_path, monkeypatch)
    assert refused(two) and not refused(two, GOOD) and not refused(two, ("bad", "v2"))


def test_a_death_is_counted_once_however_often_drivers_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(tmp_path)
    before = (tmp_path / "running").read_bytes()
    after(tmp_path, monkeypatch)
    (tmp_path / "running").write_bytes(before)  # a driver was killed between the count and its first word
    assert not refused(after(tmp_path, monkeypatch))


def test_who_ends_the_micro_batch_in_which_drivers_died_is_suspected_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    die(tmp_path)
    one = after(tmp_path, monkeypatch)
    one.outlived(BAD, 6)
    assert one.suspects(BAD)
    one.outlived(BAD, 7)
    assert not one.suspects(BAD)
    die(tmp_path)
    assert not refused(after(tmp_path, monkeypatch))


def test_a_restart_that_a_person_wished_for_is_another_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(tmp_path)
    die(tmp_path)
    assert not refused(after(tmp_path, monkeypatch, restarts=1))
    die(tmp_path, restarts=1)
    assert not refused(after(tmp_path, monkeypatch, restarts=1))
    die(tmp_path, restarts=1)
    assert refused(after(tmp_path, monkeypatch, restarts=1))


def fails(journal: Journal, place: tuple[str, str], error: Exception) -> None:
    with pytest.raises(type(error)), journal.running(place, 7):
        raise error


def test_who_failed_is_named_no_more_and_who_lost_the_jvm_still_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, silence = Journal(str(tmp_path), lambda _: 0), Py4JNetworkError("no answer")
    fails(one, GOOD, ArithmeticError("too large"))
    monkeypatch.setattr(session, "answers", lambda: True)
    fails(one, GOOD, silence)
    monkeypatch.setattr(session, "answers", lambda: False)
    fails(one, BAD, silence)
    fails(one, GOOD, silence)  # whoever runs in a JVM that has gone fails too
    found = after(tmp_path, monkeypatch)
    assert found.suspects(BAD) and not found.suspects(GOOD)


def test_a_driver_that_ends_by_itself_leaves_no_suspects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Journal(str(tmp_path), lambda _: 0)
    one.name(BAD, 7)
    one.close()
    assert not after(tmp_path, monkeypatch).suspects(BAD)


def test_what_was_torn_accuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    die(tmp_path)
    text = (tmp_path / "running").read_text()
    (tmp_path / "running").write_text(text[: len(text) // 2])
    assert after(tmp_path, monkeypatch).suspicions == {}


def test_a_shorter_line_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    one = Journal(str(tmp_path), lambda _: 0)
    for number in range(40):
        one.name((f"pipeline_{number}", "v1"), number)
    for number in range(40):
        one.name((f"pipeline_{number}", "v1"), None)
    assert journals.read(tmp_path / "running") == {"driver": journals.ME, "runs": {}}
