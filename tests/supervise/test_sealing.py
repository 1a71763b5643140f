"""Sealing that stops is an incident by what the control store knows, whatever stops it; a quiet topic owes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from definitions import edit, write

from tally.base.duration import from_millis, iso
from tally.catalog.load import catalogue
from tally.catalog.schedule import every
from tally.control import incidents, ledger, runs, seals, streams
from tally.control.store import now_ms
from tally.supervise import sealing
from tally.supervise.sealing import STOPPED, judge_sealing, last_due

MINUTE, HOUR = 60_000, 3_600_000


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_CATALOG", str(write(tmp_path / "catalogue")))
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    for name in ("TALLY_CONTROL", "TALLY_DEADLINE", "TALLY_BATCH_EVERY", "TALLY_SETTLE"):
        monkeypatch.delenv(name, raising=False)


def due() -> int:
    """When the last batch was due whose deadline is over."""
    return last_due(every(catalogue().pipeline("demand")), from_millis(now_ms() - HOUR))


def streamed(at: int, watermark: int, batch: int = 0) -> None:
    """A micro-batch that was committed at an instant, with a watermark."""
    version = catalogue().pipeline("demand").version
    ledger.record([
        ledger.MicroBatch(
            pipeline="demand", version=version, generation=1, batch=batch, ranges={"rides": {0: (batch, batch + 1)}},
            late_watermark=0, watermark=watermark, rows=1, delta_version=batch, committed_at=at,
        )
    ])  # fmt: skip


def judged(start: int, end: int, state: str = "sealed", changed: int = 1) -> None:
    version = catalogue().pipeline("demand").version
    seals.write(
        seals.Seal(
            pipeline="demand", version=version, slot_start=slot, slot_end=slot + MINUTE, state=state, revision=1,
            digest="", rows=1, reconciliation=1, changed_at=changed,
        )
        for slot in range(start, end, MINUTE)
    )  # fmt: skip


def compared(
    to: int, watermark: int, *, verdict: str, closed: list[int], start: int | None = None,
    still_open: Sequence[int] = (),
) -> None:  # fmt: skip
    version = catalogue().pipeline("demand").version
    span = (0, 0) if start is None else (start, to)
    number = runs.open_reconciliation("demand", version, *span, "t")
    cut = {"batch": 0, "generation": 1, "watermark": iso(from_millis(watermark)), "speed_version": 0}
    slots = [{"start": end - MINUTE, "end": end, "closed": True} for end in closed]
    slots += [{"start": slot, "end": slot + MINUTE, "closed": False} for slot in still_open]
    runs.keep_comparison(number, {"cut": cut}, slots)
    if verdict != "compared":
        runs.judge_reconciliation(number, verdict, "", {"cut": cut})


def open_now() -> list[Any]:
    return [one for one in incidents.opened("demand") if one.cause == STOPPED]


def test_what_was_closed_when_the_batch_was_due_and_is_not_sealed_a_deadline_later_is_an_incident() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - 2 * HOUR, due() - HOUR)
    assert judge_sealing() == ["demand"]
    (one,) = open_now()
    assert f"only those before {iso(from_millis(due() - HOUR))} are judged" in one.evidence
    assert iso(from_millis(due() - 2 * MINUTE)) in one.evidence and "within 1 hour" in one.evidence
    assert "batch__demand" in one.cure and "archive__rides" in one.cure
    judged(due() - HOUR, due() - 2 * MINUTE)
    assert judge_sealing() == [] and open_now() == []


def test_none_ever_sealed_is_an_incident_too() -> None:
    streamed(due() - MINUTE, due() - 30 * MINUTE)
    assert judge_sealing() == ["demand"]
    assert "none was ever judged" in open_now()[0].evidence


def test_a_held_window_is_judged_and_has_an_incident_of_its_own() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - HOUR, due() - 2 * MINUTE, "held")
    assert judge_sealing() == []


def test_a_new_stream_a_quiet_topic_and_one_that_wakes_up_owe_nothing() -> None:
    assert judge_sealing() == [], "no stream ever ran"
    streamed(due() + MINUTE, due())
    assert judge_sealing() == [], "it began after the last batch was due"
    streamed(due() - 300 * MINUTE, due() - 310 * MINUTE, batch=0)
    streamed(now_ms(), now_ms() - MINUTE, batch=1)
    judged(due() - 400 * MINUTE, due() - 310 * MINUTE)
    assert judge_sealing() == [], "what was read since is for the next batch"


def test_windows_without_rows_are_not_waited_for() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - 2 * HOUR, due() - HOUR)
    compared(0, due() - MINUTE, verdict="compared", closed=[])
    assert judge_sealing() == [], "a comparison at that cut found nothing that was due"


def test_a_range_whose_last_windows_are_empty_is_judged() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - 2 * HOUR, due() - HOUR)
    compared(due(), due() - MINUTE, verdict="reconciled", closed=[due() - HOUR], start=due() - 2 * HOUR)
    assert judge_sealing() == []


def test_what_was_judged_and_never_sealed_is_not() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - 2 * HOUR, due() - HOUR)
    compared(due(), due() - MINUTE, verdict="reconciled", closed=[due() - HOUR, due() - MINUTE], start=due() - HOUR)
    assert judge_sealing() == ["demand"]


def test_a_comparison_that_nobody_judged_is_the_cause() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    compared(due(), due() - MINUTE, verdict="compared", closed=[due() - MINUTE], start=due() - HOUR)
    assert judge_sealing() == ["demand"]
    assert "never judged" in open_now()[0].evidence


def test_a_seal_that_was_taken_back_is_waited_for_until_the_batch_that_follows_is_late() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - HOUR, due() - 2 * MINUTE)
    judged(due() - HOUR, due() - HOUR + MINUTE, "unsealed", changed=due() + MINUTE)
    assert judge_sealing() == []
    judged(due() - HOUR, due() - HOUR + MINUTE, "unsealed", changed=due() - MINUTE)
    assert judge_sealing() == ["demand"]
    assert f"the window at {iso(from_millis(due() - HOUR))} was unsealed" in open_now()[0].evidence


def test_a_window_that_was_unsealed_and_is_open_again_is_not_owed() -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judged(due() - HOUR, due() - 2 * MINUTE)
    again = due() - HOUR
    judged(again, again + MINUTE, "unsealed", changed=due() - MINUTE)
    assert judge_sealing() == ["demand"]
    compared(due(), due() - MINUTE, verdict="compared", closed=[], start=again, still_open=[again])
    assert judge_sealing() == []


def test_a_red_task_is_the_cause_and_what_airflow_knows_is_asked_only_where_the_store_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    judge_sealing(lambda name: f"batch__{name} is paused (http://a/dags/batch__{name})")
    assert open_now()[0].evidence.endswith("Cause: batch__demand is paused (http://a/dags/batch__demand)")
    incidents.report("demand", sealing.BATCH_FAILED, "no disk (http://a/dags/batch__demand/runs/r/tasks/t)")
    judge_sealing(lambda _: pytest.fail("the cause is known"))
    assert "Cause: batch failed: no disk (http://a/" in open_now()[0].evidence
    incidents.close("demand", sealing.BATCH_FAILED)
    incidents.report("", sealing.ARCHIVE_FAILED.format("payments"), "not of its topic")
    incidents.report("", sealing.ARCHIVE_FAILED.format("rides"), "no broker (http://a/dags/archive__rides/runs/r)")
    judge_sealing(lambda _: pytest.fail("the cause is known"))
    assert open_now()[0].evidence.endswith(
        "Cause: archive of rides failed: no broker (http://a/dags/archive__rides/runs/r)"
    )


def test_a_pipeline_has_a_schedule_and_a_deadline_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(tmp_path / "catalogue", 'key="zone"', 'key="zone", every="*/10 * * * *", deadline="2 hours"')
    late = last_due("*/10 * * * *", from_millis(now_ms() - 2 * HOUR))
    streamed(late - MINUTE, late - 2 * MINUTE)
    monkeypatch.setenv("TALLY_DEADLINE", "")
    assert judge_sealing() == ["demand"]
    (one,) = open_now()
    assert f"the batch of {iso(from_millis(late))} was due" in one.evidence and "within 2 hours" in one.evidence


def test_a_broken_definition_of_a_pipeline_that_ran_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "catalogue" / "pipelines" / "demand.py"
    good = file.read_text()
    file.write_text("X = = 1\n")
    assert judge_sealing() == [], "it never ran"
    streams.show("demand", state="running")
    assert judge_sealing() == ["demand"]
    assert "demand.py:1: invalid syntax" in open_now()[0].evidence
    topics = tmp_path / "catalogue" / "topics.py"
    kept = topics.read_text()
    topics.write_text("X = = 1\n")
    assert judge_sealing() == ["demand"] and "topics.py:1" in open_now()[0].evidence
    topics.write_text(kept)
    file.write_text(good)
    assert judge_sealing() == [] and open_now() == []
    file.write_text("X = = 1\n")
    (file.parent / "other.py").write_text("X = = 1\n")
    judge_sealing()
    file.unlink()
    assert judge_sealing() == [] and incidents.history("demand")[-1].done == "it has no definition any more"


def test_a_catalogue_that_is_not_there_for_a_moment_closes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    assert judge_sealing() == ["demand"]
    monkeypatch.setenv("TALLY_CATALOG", "/nowhere")
    assert judge_sealing() == [] and len(open_now()) == 1


def test_a_driver_looks_where_nobody_watches_and_tells_the_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    from tally.supervise.watch import sign

    told: list[str] = []
    monkeypatch.setenv("TALLY_WEBHOOK", "http://localhost:9/hook")
    monkeypatch.setenv("TALLY_NOTIFIERS", "my_alerts.on_call")
    monkeypatch.setattr("tally.supervise.send_notices.post", lambda one: told.append(one["cause"]))
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    look = sealing.Lookout()
    look.turn()
    assert open_now() == [], "a watcher is given a minute"
    sign("streams", "a test looks")
    look.looked -= sealing.LOOK_SECONDS
    look.turn()
    assert open_now() == [] and told == [], "somebody watches"
    monkeypatch.setattr("tally.supervise.watch.WATCHER_SILENCE_MS", 0)
    look.looked -= sealing.LOOK_SECONDS
    look.turn()
    assert told == [STOPPED] and "the streams DAG is paused" in open_now()[0].evidence
    assert not open_now()[0].told_at, "Airflow's notifier has not heard of it"


def test_the_driver_looks_at_each_turn_and_outlives_what_goes_wrong_there() -> None:
    from tally.speed.driver import Driver

    turns: list[int] = []

    def look() -> None:
        turns.append(1)
        driver.stopping = len(turns) > 1
        raise RuntimeError("no store")

    driver = Driver([], look=look)
    driver.runners, driver.takes_new = [], False
    driver.host()
    assert len(turns) == 2


def test_without_a_deadline_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed(due() - MINUTE, due() - 2 * MINUTE)
    assert judge_sealing() == ["demand"]
    monkeypatch.setenv("TALLY_DEADLINE", "")
    assert judge_sealing() == [] and open_now() == []


def test_when_a_batch_was_due() -> None:
    moment = from_millis(1_767_270_600_000)  # 2026-01-01T12:30:00Z
    assert iso(from_millis(last_due("*/5 * * * *", moment))) == "2026-01-01T12:30:00Z"
    assert iso(from_millis(last_due("0 6 * * 1-5", moment))) == "2026-01-01T06:00:00Z"
    assert iso(from_millis(last_due("@hourly", moment))) == "2026-01-01T12:00:00Z"
