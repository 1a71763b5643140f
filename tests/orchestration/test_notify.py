"""Airflow's notifiers as channels: each incident in its own words, whichever way the notifier is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseNotifier

from tally.control import incidents
from tally.orchestration.notify import notifiers
from tally.supervise.send_notices import send_notices


class Pager(BaseNotifier):  # type: ignore[misc]
    """Keeps what it would say, rendered as a provider's notifier renders its text."""

    template_fields = ("text",)
    said: ClassVar[list[str]] = []

    def __init__(self, text: str = "{{ incident.state }}: {{ incident.cause }} of {{ incident.pipeline }}") -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        assert context["incident"]["id"]
        self.said.append(self.text)


on_call = Pager("on call: {{ incident.evidence }}")


def maker() -> Pager:
    return Pager("made: {{ incident.cure }}")


class Broken(Pager):
    def notify(self, context: Any) -> None:
        raise RuntimeError("no route to the pager")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    for name in ("TALLY_CONTROL", "TALLY_WEBHOOK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Pager, "said", [])


def named(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setenv("TALLY_NOTIFIERS", ", ".join(f"{__name__}.{name}" for name in names))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Pager", ["open: failed of trips", "open: lost of zones"]),
        ("on_call", ["on call: no disk", "on call: [3, 7)"]),
        ("maker", ["made: make room", "made: rebuild"]),
    ],
)
def test_each_incident_is_said_in_its_own_words(name: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, name)
    incidents.report("trips", "failed", "no disk", cure="make room")
    incidents.report("zones", "lost", "[3, 7)", cure="rebuild")
    assert send_notices(notifiers()) == ["told people of 2 of 2 incidents"]
    assert Pager.said == words


def test_one_that_fails_or_is_not_there_takes_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "Broken", "Missing", "pytest", "Pager")
    incidents.report("trips", "failed", "no disk")
    summary, *failures = send_notices(notifiers())
    assert summary == "told people of 0 of 1 incidents"
    assert [line.split(" failed")[0].rpartition(".")[2] for line in failures] == ["Broken", "Missing", "pytest"]
    broken, missing, module = failures
    assert "no route to the pager" in broken
    assert "TALLY_NOTIFIERS" in missing and "cannot be imported" in missing
    assert "no notifier" in module
    assert Pager.said == ["open: failed of trips"]
    named(monkeypatch, "Pager")
    assert send_notices(notifiers()) == ["told people of 1 of 1 incidents"]
    assert len(Pager.said) == 1


def test_none_named_is_no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_NOTIFIERS", "")
    assert notifiers() == {}
