"""An incident is one row from its first report to its end, whoever reports it and however many at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tally.control import incidents


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


def test_those_who_report_at_once_count_one_incident() -> None:
    incidents.history()  # opens the store
    ready, numbers = threading.Barrier(16), list[int]()

    def report() -> None:
        ready.wait()
        numbers.append(incidents.report("rides", "stream failed", "division by zero"))

    threads = [threading.Thread(target=report) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = incidents.history()
    assert row["times"] == 16 and set(numbers) == {row["id"]} and len(numbers) == 16


def test_what_comes_again_after_its_end_is_another_incident() -> None:
    first = incidents.report("rides", "stream failed", "division by zero", cure="mend it", done="tried again")
    assert incidents.report("rides", "stream failed", "overflow") == first
    (row,) = incidents.opened("rides")
    assert (row["evidence"], row["done"], row["times"]) == ("overflow", "tried again", 2)
    assert incidents.close("rides", "stream failed", "stream refused", done="it runs again") == 1
    assert incidents.close("rides", "stream failed") == 0
    second = incidents.report("rides", "stream failed", "division by zero")
    assert second != first and [row["id"] for row in incidents.opened()] == [second]
    assert [(row["times"], bool(row["closed_at"])) for row in incidents.history("rides")] == [(2, True), (1, False)]


def test_pipelines_and_causes_are_told_apart() -> None:
    numbers = {incidents.report(who, what, "seen") for who in ("rides", "taxis") for what in ("late", "lost")}
    assert len(numbers) == 4
    incidents.close("rides", "late")
    assert {(row["pipeline"], row["cause"]) for row in incidents.opened()} == {
        ("rides", "lost"), ("taxis", "late"), ("taxis", "lost"),
    }  # fmt: skip
