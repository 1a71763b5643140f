"""The Python steps, and how their refusals become a task's: an answer of no is final, nothing to do is a skip."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tally.base.errors import AnswerIsNo, TallyError
from tally.control import incidents, runs
from tally.control.runs import open_reconciliation
from tally.orchestration import steps
from tally.supervise.launch import Launched

FORM = {
    "pipeline": "vendor_trips",
    "since": "2026-11-01T10:00:00+00:00",
    "until": "2026-11-01T12:00:00+00:00",
    "chunk_hours": "1",
    "dry_run": "False",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"chunk_hours": "a day"}, "chunk_hours"),
        ({"dry_run": "perhaps"}, "dry_run"),
        ({"since": "1926-11-01T10:00:00+00:00"}, "chunk_hours"),
        ({"until": FORM["since"]}, "from"),
        ({"since": "yesterday"}, "from"),
        ({"pipeline": "vendor_strips"}, "pipeline"),
    ],
)
def test_a_form_filled_in_wrongly_is_refused_for_good(
    changed: dict[str, str], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tally.backfill.coverage.retained_ranges", lambda topic: {})
    with pytest.raises(AnswerIsNo) as refused:
        steps.plan(**{**FORM, **changed})
    assert refused.value.field == field
    assert refused.value.cure


def test_a_dry_run_prints_the_plan_and_gives_no_chunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tally.backfill.coverage.retained_ranges", lambda topic: {})
    assert [chunk["from"] for chunk in steps.plan(**FORM)] == ["2026-11-01T10:00:00Z", "2026-11-01T11:00:00Z"]
    planned = capsys.readouterr().out
    assert steps.plan(**{**FORM, "dry_run": "True"}) == []
    assert capsys.readouterr().out == planned + "dry run: nothing is done\n"


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"pipelines": "vendor_trips"}, "pipelines"),
        ({"pipelines": "[]"}, "pipelines"),
        ({"pipelines": '"vendor_trips"'}, "pipelines"),
        ({"pipelines": '["vendor_trips", "vendor_trips"]'}, "pipelines"),
        ({"pipelines": '["vendor_trips", "vendor_strips"]'}, "pipelines"),
        ({"since": "2026-11-01T10:00:00Z", "until": ""}, "from"),
        ({"since": "", "until": "2026-11-01T10:00:00Z"}, "from"),
        ({"since": "2026-11-01T10:00:00Z", "until": "2026-11-01T10:00:00Z"}, "from"),
        ({"until": "tomorrow"}, "to"),
    ],
)
def test_what_is_no_choice_of_a_reconciliation_is_refused_for_good(changed: dict[str, str], field: str) -> None:
    form = {"pipelines": '["vendor_trips"]', "since": "2026-11-01T10:00:00Z", "until": "2026-11-01T11:00:00Z"}
    with pytest.raises(AnswerIsNo) as refused:
        steps.choose(**{**form, **changed})
    assert refused.value.field == field and refused.value.cure


def test_a_reconciliation_has_one_item_for_each_pipeline_that_was_chosen() -> None:
    chosen = [{"pipeline": "vendor_trips"}, {"pipeline": "paid_rides"}]
    assert steps.choose('["vendor_trips", "paid_rides"]', "", "") == chosen
    assert steps.choose('["paid_rides"]', "2026-11-01T10:00:00Z", "2026-11-01T11:00:00Z") == chosen[1:]


@pytest.mark.parametrize("new", [False, True])
def test_an_archive_run_starts_spark_only_where_something_is_new(
    new: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tally.jobs.archive.lacks_nothing", lambda topic: not new)
    assert steps.archive("rides") is not new
    assert ("nothing new to archive of rides" in capsys.readouterr().out) is not new


def test_a_comparison_is_found_by_its_own_ticket_and_pipeline() -> None:
    def opened(pipeline: str, ticket: str) -> int:
        return open_reconciliation(pipeline, "v1", 0, 60_000, ticket)

    opened("vendor_trips", "reconcile/run1/-1")
    again = opened("vendor_trips", "reconcile/run1/-1")
    opened("zone_demand", "reconcile/run1/-1")
    opened("vendor_trips", "reconcile/run2/-1")
    assert steps.compared("vendor_trips", "reconcile/run1/-1") == again
    assert len(runs.by_ticket("reconcile/run1/-1")) == 3


def test_a_run_without_a_comparison_or_with_an_empty_one_has_nothing_to_do() -> None:
    with pytest.raises(steps.NothingToDo):
        steps.compared("vendor_trips", "none")
    open_reconciliation("vendor_trips", "v1", 0, 0, "empty")
    with pytest.raises(steps.NothingToDo):
        steps.compared("vendor_trips", "empty")


def test_refusals_become_airflows() -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    from tally.orchestration.call import call

    with pytest.raises(AirflowSkipException, match="vendor_trips: no window"):
        call("seal", {"pipeline": "vendor_trips", "ticket": "none"})
    with pytest.raises(AirflowFailException, match="dry_run: 'perhaps' is neither"):
        call("plan", {**FORM, "dry_run": "perhaps"})


WISH = {"pipeline": "vendor_trips", "action": "pause", "why": "the broker moves", "by": "ada"}


@pytest.fixture
def wishes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, str]]:
    """In place of the module that writes wishes down: what it was asked."""
    asked: list[tuple[str, str, str, str]] = []

    def of(action: str) -> object:
        return lambda pipeline, *, by, why: asked.append((action, pipeline, by, why))

    stand_in = SimpleNamespace(**{action: of(action) for action in ("pause", "resume", "restart", "stop")})
    monkeypatch.setitem(sys.modules, "tally.supervise.desired_state", stand_in)
    return asked


@pytest.mark.parametrize("action", ["pause", "resume", "restart", "stop"])
def test_a_wish_is_written_down_with_who_and_why(action: str, wishes: list[tuple[str, str, str, str]]) -> None:
    steps.wish(**{**WISH, "action": action})
    assert wishes == [(action, "vendor_trips", "ada", "the broker moves")]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"why": "x" * 1001}, "why"),
        ({"why": "a\0b"}, "why"),
        ({"action": "__class__"}, "action"),
        ({"pipeline": "vendor_strips"}, "pipeline"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_for_good(
    changed: dict[str, str], field: str, wishes: list[tuple[str, str, str, str]]
) -> None:
    with pytest.raises(AnswerIsNo) as refused:
        steps.wish(**{**WISH, **changed})
    assert refused.value.field == field and refused.value.cure
    assert wishes == []


def test_the_log_tells_how_each_stream_is_in_the_words_of_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    from tally.catalog.load import catalogue
    from tally.supervise.status import diagnose

    steps.tell()
    said = capsys.readouterr().out.splitlines()
    for name in catalogue().pipelines:
        health = diagnose(name)
        assert f"{name}: dead: {health.reason}; next: {health.next_step}" in said


def test_people_are_told_of_incidents_though_the_catalogue_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    incidents.report("vendor_trips", "stale", "4,512 records")
    told: list[str] = []
    monkeypatch.setattr(
        "tally.orchestration.notify.notifiers", lambda: {"pager": lambda one: told.append(one["cause"])}
    )
    monkeypatch.setenv("TALLY_CATALOG", str(tmp_path / "nothing"))
    with pytest.raises(TallyError, match=r"no topics\.py"):
        steps.tell()
    assert told == ["stale"]
    assert "told people of 1 of 1" in capsys.readouterr().out


def test_without_a_watcher_the_clocks_run_waits_for_a_start_that_is_due_soon(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its next run comes in five minutes: a driver that may start in two seconds would lie dead until then."""
    from tally.control import streams
    from tally.control.store import now_ms
    from tally.supervise import ensure_driver as acting

    streams.launching("tally", "here", "local", "log")
    streams.died("tally", 3, now_ms() + 1_500, "no space left")
    begun: list[str] = []
    monkeypatch.setattr(acting.launch, "start", lambda app, command: begun.append(app) or Launched(pid=1, created=1.0))
    steps.act()
    said = capsys.readouterr().out
    assert begun == ["tally"] and "next try in" in said and "started driver 1" in said


def test_with_a_watcher_it_leaves_that_to_the_watchers_next_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from tally.control import streams
    from tally.control.store import now_ms
    from tally.supervise import ensure_driver as acting
    from tally.supervise.watch import sign

    streams.launching("tally", "here", "local", "log")
    streams.died("tally", 3, now_ms() + 1_500, "no space left")
    sign("streams", "a test looks")
    monkeypatch.setattr(acting.launch, "start", lambda app, command: pytest.fail("it is not time"))
    steps.act()
