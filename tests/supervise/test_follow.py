"""A form's run is green when what was wished has happened, red when it cannot, and never after a later wish."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from stand_in import COMMAND, home, registered

from tally.base.errors import AnswerIsNo
from tally.control import streams
from tally.control.store import now_ms
from tally.host import driver_files, lock
from tally.supervise import desired_state, follow
from tally.supervise.ensure_driver import ensure_driver, start_anew

__all__ = ["home"]


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    monkeypatch.setattr(follow, "POLL", 0.02)
    streams.show("trips", version="v1", app="tally", state="running")


@pytest.mark.usefixtures("own_home")
@pytest.mark.parametrize(("action", "state"), follow.DONE.items())
def test_it_has_happened_when_the_driver_shows_so_and_not_before(action: str, state: str) -> None:
    streams.show("trips", state="starting")
    over: list[str] = []
    with lock.hold(driver_files.lock_path()):
        waiting = threading.Thread(target=lambda: over.append(follow.follow("trips", action)), daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and over == []
        streams.show("trips", state=state)
        waiting.join(20)
        assert over == [f"it is {state}"]


@pytest.mark.usefixtures("own_home")
def test_what_does_not_happen_in_time_or_cannot_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PATIENCE", 0.1)
    with lock.hold(driver_files.lock_path()):
        with pytest.raises(AnswerIsNo, match="pause has not happened within 0 s; it stays wanted"):
            follow.follow("trips", "pause")
        streams.show("trips", state="gave_up", reason="no such column")
        with pytest.raises(AnswerIsNo, match="it does not run: no such column"):
            follow.follow("trips", "resume")


@pytest.mark.usefixtures("own_home")
def test_a_restart_is_waited_for_until_it_is_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PATIENCE", 0.1)
    wanted = streams.want_anew("trips", by="ada", why="")
    with lock.hold(driver_files.lock_path()):
        with pytest.raises(AnswerIsNo, match="restart has not happened"):
            follow.follow("trips", "restart")
        streams.show("trips", state="running", restarts=wanted)
        assert follow.follow("trips", "restart") == "it is running"


@pytest.mark.usefixtures("own_home")
def test_without_a_driver_nothing_runs_and_that_is_said() -> None:
    assert follow.follow("trips", "pause") == "no driver lives: nothing of it runs"
    assert follow.follow("trips", "resume") == "no driver lives: the streams DAG starts one"


@pytest.mark.usefixtures("own_home")
def test_of_wishes_that_overtake_one_another_the_one_that_was_asked_for_last_stays() -> None:
    now = now_ms()
    with streams.asked_at(now):
        streams.want("trips", "running", by="bob", why="")
    with streams.asked_at(now - 1), pytest.raises(AnswerIsNo, match="a later wish stands: running, by bob"):
        streams.want("trips", "paused", by="ada", why="")
    with streams.asked_at(now):
        streams.want("trips", "running", by="bob", why="cleared")
    assert (streams.wanted("trips")["state"], streams.wanted("trips")["why"]) == ("running", "cleared")
    streams.want("trips", "stopped", by="a terminal", why="")
    assert streams.wanted("trips")["state"] == "stopped"


@pytest.mark.usefixtures("home")
def test_many_restarts_at_once_start_a_dead_driver_once(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []

    def anew(*, since: int) -> object:
        done = start_anew(command=COMMAND, since=since)
        began.append(int(done.pid or 0))
        return done

    monkeypatch.setattr(desired_state, "start_anew", anew)
    monkeypatch.setattr(desired_state, "catalogue", lambda: Known())
    asking = [threading.Thread(target=desired_state.restart, args=(f"p{n}",), kwargs=BY) for n in range(5)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(60)
    assert len(began) == 5 and len(set(began)) == 1
    registered()
    assert ensure_driver(command=COMMAND).did == "nothing to do"


BY = {"by": "ada", "why": ""}


class Known:
    """A catalogue of which only names are asked."""

    def pipeline(self, name: str) -> Known:
        self.name = name
        return self
