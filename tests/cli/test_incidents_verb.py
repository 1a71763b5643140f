"""`tally incidents`: what is open, readable by a person and by a script, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from definitions import write

from tally.cli import app
from tally.control import incidents


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TALLY_CATALOG", str(write(tmp_path / "catalogue")))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


def ran(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = app.run(["incidents", *arguments])
    out, err = capfd.readouterr()
    return code, out, err


def test_nothing_is_open_and_all_is_well(capfd: pytest.CaptureFixture[str]) -> None:
    assert ran(capfd) == (0, "nothing is open\n", "")
    incidents.report("demand", "stream failed", "no disk")
    incidents.close("demand", "stream failed")
    assert ran(capfd) == (0, "nothing is open\n", "")


def test_an_open_one_says_all_that_a_person_needs_and_the_exit_code_is_1(capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        number = incidents.report("demand", "stream failed", "no disk\nat all", cure="make room", done="tried again")
    incidents.report("", "watcher silent", "for 90 s")
    code, out, _ = ran(capfd)
    assert code == 1
    first, second = out.index(f"{number} OPEN  demand: stream failed"), out.index("OPEN  all pipelines: watcher silent")
    assert first < second
    for text in ("3 times", "once", "no disk\n              at all", "done:     tried again", "cure:     make room"):
        assert text in out, out
    assert out.endswith("2 open\n")


def test_history_is_given_when_asked_for_and_a_pipeline_has_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    incidents.report("demand", "stream failed", "no disk")
    incidents.close("demand", "stream failed", done="room was made")
    incidents.report("removed", "data lost", "offsets [3, 7)")
    code, out, _ = ran(capfd, "--all")
    assert code == 1 and "CLOSED  demand: stream failed" in out and "over since" in out and "room was made" in out
    assert ran(capfd, "demand")[0] == 0
    assert ran(capfd, "demand", "--all")[0] == 0
    assert ran(capfd, "removed")[0] == 1


def test_a_pipeline_that_never_was_is_wrong_use(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capfd, "demmand")
    assert (code, out) == (2, "") and "demmand" in err and "cure:" in err


def test_json_is_a_list_with_iso_times(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from tally.cli import output

    monkeypatch.setattr(output, "_stdout", None)
    monkeypatch.setattr(app, "keep_stdout_for_the_document", lambda: None)  # this process's stdout is pytest's
    assert json.loads(ran(capfd, "--json")[1]) == []
    number = incidents.report("demand", "stream failed", "no disk", cure="make room")
    code, out, _ = ran(capfd, "--json")
    (row,) = json.loads(out)
    assert code == 1
    assert (row["id"], row["state"], row["closed_at"], row["told_at"]) == (number, "open", None, None)
    assert row["first_seen"].endswith("Z") and row["first_seen"][10] == "T" and row["cure"] == "make room"
