"""`tally begin`: what is known of a beginning in words, and a person's word that is kept with who and why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from reconcile.comparisons import STEP, T0, use_home

from tally.base.duration import from_millis, iso
from tally.base.errors import TallyError
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.cli.reconcile import beginning_lines as lines
from tally.control import beginnings, incidents
from tally.jobs import begin


class Killed(Exception):
    """The process is gone here."""


@pytest.fixture(autouse=True)
def trips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pipeline:
    """A pipeline of one-minute windows, unique ids and a lateness of ten minutes."""
    use_home(monkeypatch, tmp_path)
    return catalogue().pipeline("vendor_trips")


def cut(pipeline: Pipeline, *, append_time: bool) -> None:
    known = {"first": 1500, "broker_time": T0, "append_time": append_time, "newest": T0}
    beginnings.keep(pipeline.reads[0].name, T0, {2: known})


def said(pipeline: Pipeline, *, new: bool = False) -> str:
    return "\n".join(lines(begin.known(pipeline), new=new))


def test_where_nothing_is_missing_there_is_nothing_to_say(trips: Pipeline) -> None:
    assert "nothing is known to be missing" in said(trips)
    assert begin.known(trips).as_json()["begins"] is None


@pytest.mark.parametrize(("append_time", "words"), [(True, ""), (False, " if the declared lateness holds")])
def test_what_was_gone_is_named_with_how_sure_that_is(trips: Pipeline, append_time: bool, words: str) -> None:
    cut(trips, append_time=append_time)
    before = beginnings.of(trips).missed[0].before(trips.reads[0])
    told = said(trips)
    assert "partition 2, offsets [0, 1,500)" in told
    assert f"their events are before {iso(from_millis(before))}{words}\n" in f"{told}\n"
    assert "may lack" not in told


def test_a_word_earlier_than_the_data_allows_is_taken_and_says_what_may_be_missing(trips: Pipeline) -> None:
    cut(trips, append_time=False)
    found = begin.begin(trips, iso(from_millis(T0)), "counted by hand").as_json()
    assert found["begins"] == iso(from_millis(T0)) and found["may_lack"][0]["offsets"] == [0, 1500]
    told = said(trips, new=True)
    assert (
        "counted by hand" in told and "may lack: topic" in told and told.endswith(f"next: tally reconcile {trips.name}")
    )
    (entry,) = incidents.history(trips.name)
    assert entry.closed_at and entry.cause == begin.CAUSE and "counted by hand" in entry.done
    later = begin.begin(trips, iso(from_millis(T0 + 100 * STEP)), "").as_json()
    assert later["may_lack"] == [] and len(incidents.history(trips.name)) == 2


def test_killed_after_the_word_was_written_it_counts(trips: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(_: str) -> None:
        raise Killed

    monkeypatch.setattr(begin, "failpoint", die)
    with pytest.raises(Killed):
        begin.begin(trips, iso(from_millis(T0)), "why")
    word = beginnings.of(trips).said
    assert word is not None and (word.from_ms, word.why) == (T0, "why")


def test_wrong_use_names_the_field(trips: Pipeline) -> None:
    with pytest.raises(TallyError) as refused:
        begin.begin(trips, "yesterday", "")
    assert refused.value.field == "--at"
    with pytest.raises(TallyError):
        begin.begin(trips, iso(from_millis(T0)), "x" * 2000)
    assert beginnings.of(trips).said is None
