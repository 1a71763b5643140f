"""An incident is one row from its first report to its end, whoever reports it and however many at once."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
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
    assert row.times == 16 and set(numbers) == {row.id} and len(numbers) == 16


def test_what_comes_again_after_its_end_is_another_incident() -> None:
    first = incidents.report("rides", "stream failed", "division by zero", cure="mend it", done="tried again")
    assert incidents.report("rides", "stream failed", "overflow") == first
    (row,) = incidents.opened("rides")
    assert (row.evidence, row.done, row.times) == ("overflow", "tried again", 2)
    assert incidents.close("rides", "stream failed", "stream refused", done="it runs again") == 1
    assert incidents.close("rides", "stream failed") == 0
    second = incidents.report("rides", "stream failed", "division by zero")
    assert second != first and [row.id for row in incidents.opened()] == [second]
    assert [(row.times, bool(row.closed_at)) for row in incidents.history("rides")] == [(2, True), (1, False)]


def test_pipelines_and_causes_are_told_apart() -> None:
    numbers = {incidents.report(who, what, "seen") for who in ("rides", "taxis") for what in ("late", "lost")}
    assert len(numbers) == 4
    incidents.close("rides", "late")
    assert {(row.pipeline, row.cause) for row in incidents.opened()} == {
        ("rides", "lost"), ("taxis", "late"), ("taxis", "lost"),
    }  # fmt: skip


def test_its_document_is_what_scripts_read_to_the_byte() -> None:
    open_one = incidents.Incident(
        id=7, pipeline="rides", cause="late", evidence="3 h", cure="look", done="", first_seen=1_000, last_seen=61_000,
        times=2, closed_at=None, told_at=0, told_closed_at=0,
    )  # fmt: skip
    assert json.dumps(open_one.as_json()) == (
        '{"id": 7, "state": "open", "pipeline": "rides", "cause": "late", "evidence": "3 h", "cure": "look", '
        '"done": "", "first_seen": "1970-01-01T00:00:01Z", "last_seen": "1970-01-01T00:01:01Z", "times": 2, '
        '"closed_at": null, "told_at": null, "told_closed_at": null}'
    )
    over = replace(open_one, closed_at=2_000, told_at=1_000).as_json()
    assert (over["state"], over["closed_at"]) == ("closed", "1970-01-01T00:00:02Z")
    assert (over["told_at"], over["told_closed_at"]) == ("1970-01-01T00:00:01Z", None)
