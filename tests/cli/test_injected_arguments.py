"""What somebody may put into an argument or option of a verb is refused by name or taken as the text that it is."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa
from typer.main import get_command

from faults import corpus
from tally.base.errors import TallyError
from tally.cli import app, output
from tally.cli.read import print_table
from tally.control.store import store
from tally.control.tables import metadata
from tally.serving.read import Rows

# What the other arguments of a verb hold while one is tried out, by name; all that a verb must be given is here.
GOOD = {
    "pipeline": "vendor_trips", "pipelines": "vendor_trips",
    "since": "2026-11-01T10:00:00Z", "until": "2026-11-01T12:00:00Z",
}  # fmt: skip
FREE = {"why"}
# What an option may well mean by it: a file that is there, and any whole number as a seed.
MEANT = {"csv": {"absolute"}, "seed": {"huge"}}
# A control character, or one that a reader cannot see, is not to reach a terminal as it is.
SHOWN = "\n\t"


@dataclass(frozen=True)
class Place:
    """One argument or option of a verb that takes a text or a number."""

    verb: str
    name: str
    option: str  # "" for an argument
    good: tuple[str, ...]  # the verb's other arguments


def command(verb: str) -> Any:
    return get_command(app._app([verb])).commands[verb]  # type: ignore[attr-defined]


def places() -> list[Place]:
    """Found in the commands themselves: a new verb or option is covered when it exists."""
    found = []
    for verb in app.VERBS:
        params = command(verb).params
        for param in params:
            is_option = param.param_type_name == "option"
            if (is_option and param.is_flag) or param.name == "help":
                continue
            others = [one for one in params if one.required and one is not param]
            good = [f"{one.opts[0]}={GOOD[one.name]}" for one in others if one.param_type_name == "option"]
            good += ["--", *(GOOD[one.name] for one in others if one.param_type_name == "argument")]
            option = param.opts[0] if is_option else ""
            found.append(Place(verb, param.name, option, tuple(good)))
    return found


PLACES = places()


@dataclass(frozen=True)
class Said:
    """What one command line came to."""

    code: int
    out: str
    err: str


class Kept(TallyError):
    """A verb was about to start something for a value that it takes for good."""


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture(autouse=True)
def nothing_starts(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What begins only once every argument was looked at is not begun here; all before it is the product's own."""

    def kept(*_: Any, **__: Any) -> Any:
        raise Kept("kept from running", cure="none")

    monkeypatch.chdir(tmp_path)
    for place in (
        "tally.jobs.batch.session", "tally.reconcile.compare.session", "tally.speed.driver.Driver.run",
        "tally.demo.run.Demo", "tally.demo.produce.Sender",
        "tally.supervise.desired_state.start_anew",
    ):  # fmt: skip
        monkeypatch.setattr(place, kept)
    yield
    with store().begin() as connection:
        for name in ("desired", "begins"):
            connection.execute(sa.delete(metadata.tables[name]))


def run(arguments: list[str], folder: Path) -> Said:
    """A command line in this process, with files for its stdout and stderr."""
    files, before = [folder / "stdout", folder / "stderr"], [os.dup(1), os.dup(2)]
    streams = sys.stdout, sys.stderr
    for number, file in enumerate(files, 1):
        with file.open("wb") as opened:
            os.dup2(opened.fileno(), number)
    # As Python makes them for a terminal: what cannot be written is an error on stdout, and escaped on stderr.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "wb", closefd=False), "utf-8", errors, write_through=True)
        for number, errors in ((1, "strict"), (2, "backslashreplace"))
    )
    try:
        code = app.run(arguments)
    finally:
        output._stdout = None
        sys.stdout, sys.stderr = streams
        for number, old in enumerate(before, 1):
            os.dup2(old, number)
            os.close(old)
    return Said(code, *(file.read_bytes().decode() for file in files))


def line(place: Place, value: str, *more: str) -> list[str]:
    """The command line with the value in its place; an argument stands behind `--`, so that it is no option."""
    words = [place.verb, *more]
    if place.option:
        return [*words, f"{place.option}={value}", *place.good]
    return [*words, *place.good, value]


def rows() -> dict[str, list[tuple[Any, ...]]]:
    with store().connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sa.select(table))] for table in metadata.sorted_tables
        }


def refused(place: Place, name: str, said: Said) -> list[str]:
    """What is wrong with how a value was taken, with --json."""
    wrong = [] if said.err == "" or "Traceback" not in said.err else ["a traceback"]
    try:
        told = json.loads(said.out)
    except ValueError:
        return [*wrong, f"no JSON document: {said.out[:200]!r}"]
    error = str(told.get("error", "")) if isinstance(told, dict) else ""
    if error.startswith("unexpected"):
        wrong.append(error[:200])
    elif said.code not in (1, 2) or not error:
        wrong.append(f"exit code {said.code}: {said.out[:200]}")
    elif error == "kept from running" and name not in corpus.NUMBERS | MEANT.get(place.name, set()):
        wrong.append("was taken for a value")
    elif not told.get("cure"):
        wrong.append(f"no cure: {error[:200]}")
    return wrong


@pytest.mark.parametrize("place", [p for p in PLACES if p.name not in FREE], ids=lambda p: f"{p.verb} {p.name}")
def test_a_bad_value_is_refused_with_a_cure(place: Place, canary: Path, tmp_path: Path) -> None:
    before, wrong = rows(), {}
    for name, value in corpus.values(canary).items():
        found = refused(place, name, run(line(place, value, "--json"), tmp_path))
        if found:
            wrong[name] = found
    assert wrong == {}
    assert rows() == before
    assert not canary.exists()


def unseen(text: str) -> set[str]:
    return {char for char in text if not char.isprintable() and char not in SHOWN}


@pytest.mark.parametrize("place", [p for p in PLACES if p.name not in FREE], ids=lambda p: f"{p.verb} {p.name}")
def test_a_terminal_is_not_driven_by_what_it_is_told(place: Place, canary: Path, tmp_path: Path) -> None:
    for name, value in corpus.values(canary).items():
        if not value.isprintable():
            said = run(line(place, value), tmp_path)
            assert unseen(said.out + said.err) == set(), name
            assert "all is well" not in [text[-11:] for text in said.err.splitlines() if text.startswith("[")], name
            assert len(said.err) < 20_000, name


def reason_places() -> list[Place]:
    """Where a reason is given; that of a beginning goes with its time. A rebuild needs a stream: see its own tests."""
    free = [place for place in PLACES if place.name in FREE and place.verb != "rebuild"]
    at = ("--at=2026-01-01",)
    return [replace(place, good=(*at, *place.good)) if place.verb == "begin" else place for place in free]


@pytest.mark.parametrize("place", reason_places(), ids=lambda p: p.verb)
def test_a_reason_is_kept_word_by_word_or_refused_and_shown_so_that_it_does_nothing(
    place: Place, canary: Path, tmp_path: Path
) -> None:
    for name, value in corpus.values(canary).items():
        if name in ("nul", "surrogate") or name.startswith("long"):
            before = rows()
            assert refused(place, name, run(line(place, value, "--json"), tmp_path)) == []
            assert rows() == before
            continue
        said = run(line(place, value, "--json"), tmp_path)
        if place.verb == "restart":
            assert json.loads(said.out)["error"] == "kept from running"
        elif place.verb == "begin":
            assert said.code == 0 and json.loads(said.out)["said"]["why"] == value, name
        else:
            assert said.code == 0 and json.loads(said.out)[0]["why"] == value, name
        if place.verb == "begin":  # each word on it is kept
            assert value in rows()["begins"][-1]
            continue
        (wish,) = rows()["desired"]
        assert value in wish
        for verb in ("status", "doctor") if place.verb == "pause" else ():  # they show every wish alike
            shown = run([verb, *(["vendor_trips"] if verb == "doctor" else [])], tmp_path)
            assert "unexpected" not in shown.err and unseen(shown.out + shown.err) == set(), name
            assert not [text for text in shown.out.splitlines() if text.startswith(("[2026", "touch"))], name
    assert not canary.exists()


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_what_is_no_verb_is_refused(json_too: tuple[str, ...], canary: Path, tmp_path: Path) -> None:
    for name, value in corpus.values(canary).items():
        if not value.startswith("-"):
            said = run([value, *json_too], tmp_path)
            assert said.code == 2 and "Traceback" not in said.err and "unexpected" not in said.err, name
            assert unseen(said.out + said.err) == set() or json_too
    assert not canary.exists()


def test_what_an_event_holds_is_text_in_a_table_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {"window_start": "VARCHAR", "key": "VARCHAR"}
    sql = "SELECT '-' AS window_start, '[/][bold]' || chr(27) || '[2J' AS key"
    found = Rows(connection=duckdb.connect(), sql=sql, order=("key",), columns=columns)
    print_table(found, 10)
    assert "[/][bold]\\x1b[2J" in capsys.readouterr().out
