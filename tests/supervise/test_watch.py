"""The watcher: it orders what a driver needs, by its own clock, and is itself watched. The driver is a stand-in."""

from __future__ import annotations

import time

import pytest
from stand_in import COMMAND, home, registered, silence

from tally.control import incidents, streams
from tally.supervise import policy
from tally.supervise.ensure_driver import ensure_driver
from tally.supervise.watch import Watch, check_watcher

__all__ = ["home"]
pytestmark = pytest.mark.usefixtures("home")


def test_the_watcher_measures_silence_on_its_own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_driver(command=COMMAND)
    registered()
    watch = Watch()
    silence(3_600)
    assert watch.turn() is None
    monkeypatch.setattr(policy, "SILENCE_MS", 500)
    time.sleep(0.6)
    step = watch.turn()
    assert step is not None and step.kind == "replace"
    assert watch.turn() is None, "an order is not given every second"
    streams.heartbeat("tally")
    assert watch.turn() is None and watch.ordered == ""


def test_nobody_watching_is_an_incident_until_somebody_does() -> None:
    assert "nobody ever watched" in check_watcher()
    (incident,) = incidents.opened("")
    assert incident.cause == "no watcher"
    Watch().turn()
    assert "looked 0 s ago" in check_watcher()
    assert not incidents.opened("")


def test_an_incident_that_nobody_was_told_of_wakes_the_dag_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_driver(command=COMMAND)
    registered()
    incidents.report("trips", "unexplained difference", "3 events")
    assert Watch().turn() is None, "nobody is to be told"
    monkeypatch.setenv("TALLY_WEBHOOK", "http://localhost:1/hook")
    watch = Watch()
    step = watch.turn()
    assert step is not None and step.kind == "tell"
    assert watch.turn() is None


def test_an_order_that_nobody_follows_is_told_to_people_by_the_watcher_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's scheduler stands, or the DAG is paused: the run that would tell people does not come either."""
    monkeypatch.setattr("tally.supervise.watch.UNHEEDED_SECONDS", 0.5)
    told: list[list[str]] = []
    watch = Watch(tell=lambda: told.append([row.cause for row in incidents.opened("")]))
    assert watch.turn() is not None and not told, "it was only just ordered"
    time.sleep(0.6)
    watch.turn()
    watch.turn()
    assert told == [["nobody follows the watcher"]], "once"
    (incident,) = incidents.opened("")
    assert "no driver" in incident.evidence and "tally restart" in incident.cure
    ensure_driver(command=COMMAND)
    registered()
    watch.turn()
    assert incidents.opened("") == []
