"""One writer over machines: who beats keeps the lease, who is silent loses it, and whoever lost it writes no more."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tally.base.errors import TallyError
from tally.control import leases
from tally.control.leases import Fenced
from tally.control.store import store

# Takes the lease and beats; at the end of its input it says whether it might still commit.
HOLDER = """
import sys, threading, time
from tally.control import leases
lease = leases.take(sys.argv[1])
print(lease.epoch, flush=True)
def beats():
    while leases.beat(lease):
        time.sleep(0.1)
threading.Thread(target=beats, daemon=True).start()
sys.stdin.readline()
try:
    leases.check(lease)
    print("commits", flush=True)
except leases.Fenced as error:
    print(error.message, flush=True)
"""


@pytest.fixture
def name(home: Path, request: pytest.FixtureRequest) -> str:
    return f"speed/{request.node.name}/v1"


@pytest.fixture
def other(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A holder on another machine, as far as the store can tell."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TALLY_HOST": "east"},
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "1\n"
    monkeypatch.setenv("TALLY_HOST", "west")
    yield process
    process.kill()
    process.wait()


def freeze(process: subprocess.Popen[str]) -> None:
    """Stop it between two beats: in the middle of one it would hold SQLite's own lock."""
    while True:
        process.send_signal(signal.SIGSTOP)
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(store().url.database or "", 0.2)) as file:
            file.execute("BEGIN IMMEDIATE")
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)


def last_word(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_who_beats_keeps_it_and_is_named(other: subprocess.Popen[str], name: str) -> None:
    with pytest.raises(TallyError, match=f"written by process {other.pid} on east"):
        leases.take(name, silence=2.0)
    assert last_word(other) == "commits"


def test_a_stopped_holder_loses_it_and_never_commits_again(other: subprocess.Popen[str], name: str) -> None:
    freeze(other)
    mine = leases.take(name, silence=1.5)
    assert (mine.epoch, mine.sure) == (2, False), "silent, but not known to be gone"
    other.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    assert "on west writes this table now" in last_word(other)
    leases.check(mine)


def test_a_dead_holder_of_this_machine_is_not_waited_for(
    other: subprocess.Popen[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_HOST", "east")
    other.kill()
    other.wait()
    before = time.monotonic()
    mine = leases.take(name)
    assert (mine.epoch, mine.sure) == (2, True)
    assert time.monotonic() - before < leases.SILENCE_SECONDS / 2


def test_one_that_was_let_go_is_free_and_the_old_epoch_stays_refused(name: str) -> None:
    first = leases.take(name)
    leases.release(first)
    with pytest.raises(Fenced):
        leases.check(first)
    second = leases.take(name)
    assert (second.epoch, second.sure) == (2, True)
    assert not leases.beat(first) and leases.beat(second)
    leases.release(first)
    leases.check(second)


def test_one_of_the_same_name_in_another_container_is_not_known_to_be_gone(
    other: subprocess.Popen[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod bears the name of the one that it replaces, and no pid of that one can be seen from it."""
    monkeypatch.setenv("TALLY_HOST", "east")
    monkeypatch.setattr(leases, "place", lambda: "another machine")
    other.kill()
    other.wait()
    began = time.monotonic()
    lease = leases.take(name, silence=2.0)
    assert (lease.epoch, lease.sure) == (2, False) and time.monotonic() - began >= 2.0


def test_several_silent_holders_are_waited_for_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{name}/{number}" for number in range(3)]
    monkeypatch.setenv("TALLY_HOST", "east")
    for one in names:
        leases.take(one)
    monkeypatch.setenv("TALLY_HOST", "west")
    leases.listen([*names, "speed/nobody ever took it/v1"])
    began = time.monotonic()
    taken = [leases.take(one, silence=3.0) for one in names]
    assert [(one.epoch, one.sure) for one in taken] == [(2, False)] * 3
    assert 2.0 <= time.monotonic() - began < 6.0


def test_a_beat_since_it_was_listened_to_is_no_silence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOST", "east")
    theirs = leases.take(name)
    monkeypatch.setenv("TALLY_HOST", "west")
    leases.listen([name])
    time.sleep(1.5)
    assert leases.beat(theirs)
    began = time.monotonic()
    assert leases.take(name, silence=2.0).epoch == 2
    assert time.monotonic() - began >= 1.9


def test_of_many_that_take_a_silent_one_at_once_one_gets_it(other: subprocess.Popen[str], name: str) -> None:
    freeze(other)
    script = "import sys; from tally.control import leases; print('ready', flush=True); sys.stdin.readline(); "
    script += f"print(leases.take({name!r}, silence=2.0).epoch)"
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", script], env={**os.environ, "TALLY_HOST": f"host{number}"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for number in range(5)
    ]  # fmt: skip
    for taker in takers:  # one that came late would find the winner gone, and silent
        assert taker.stdout and taker.stdout.readline() == "ready\n"
    for taker in takers:
        assert taker.stdin
        taker.stdin.write("\n")
        taker.stdin.flush()
    assert sorted(taker.communicate(timeout=60)[0] for taker in takers) == ["", "", "", "", "2\n"]
