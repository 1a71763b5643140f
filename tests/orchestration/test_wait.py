"""A batch's wait for its archives: no worker meanwhile, over by what a run of the archive says, and never for ever."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from tally.base.duration import from_millis, iso
from tally.base.errors import TallyError
from tally.control import runs
from tally.control.store import now_ms
from tally.orchestration import wait
from tally.orchestration.wait import ArchiveReached, ArchiveWait, Marks

END = 1_793_500_500_000
PAUSED = "archive__rides is paused (http://a/dags/archive__rides)"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    monkeypatch.setattr(wait, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(wait, "marks", Marks())
    monkeypatch.setattr(wait, "of_dag", lambda task, dag: PAUSED if dag == "archive__rides" else "")


def waiting(*topics: str) -> ArchiveWait:
    made = ArchiveWait(
        task_id="wait", topics=topics or ("rides",), until=iso(from_millis(END)), patience=timedelta(hours=2)
    )
    return made


CONTEXT: dict[str, Any] = {"ti": SimpleNamespace()}


def deferred(task: ArchiveWait) -> ArchiveReached:
    """The trigger that a task leaves the worker for, as the triggerer makes it anew from what it is kept as."""
    with pytest.raises(TaskDeferred) as left:
        task.execute(CONTEXT)
    assert left.value.method_name == "go_on"
    trigger = left.value.trigger
    path, given = trigger.serialize()
    assert path == "tally.orchestration.wait.ArchiveReached", "the triggerer imports it from the installed package"
    return ArchiveReached(**given)


def event(trigger: ArchiveReached, *, seconds: float = 5.0) -> dict[str, Any]:
    """What the trigger says at last."""

    async def first() -> dict[str, Any]:
        async for one in trigger.run():
            return dict(one.payload)
        raise AssertionError("it ended without a word")

    return asyncio.run(asyncio.wait_for(first(), seconds))


def test_an_archive_that_is_there_takes_no_wait() -> None:
    runs.note_reached("rides", END)
    assert waiting().execute(CONTEXT) is None  # an old interval's too: it was archived long ago
    runs.note_reached("rides", END + 86_400_000)
    assert waiting().execute(CONTEXT) is None


def test_one_millisecond_short_is_waited_for_until_a_run_of_the_archive_says_so() -> None:
    runs.note_reached("rides", END - 1)
    trigger = deferred(waiting())

    async def both() -> dict[str, Any]:
        async def later() -> None:
            await asyncio.sleep(0.2)
            runs.note_reached("rides", END)

        begun = asyncio.create_task(later())
        async for one in trigger.run():
            await begun
            return dict(one.payload)
        raise AssertionError

    told = asyncio.run(asyncio.wait_for(both(), 5))
    assert told["late"] == []
    assert waiting().go_on(CONTEXT, told) is None


def test_of_two_topics_both_are_waited_for() -> None:
    runs.note_reached("rides", END)
    trigger = deferred(waiting("rides", "payments"))
    with pytest.raises(TimeoutError):
        event(trigger, seconds=0.3)
    runs.note_reached("payments", END)
    assert event(trigger)["late"] == []


def test_who_waits_is_told_for_what_and_what_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    runs.note_reached("rides", END - 300_000)
    deferred(waiting("rides", "payments"))
    said = capsys.readouterr().out
    assert f"archive/rides has reached {iso(from_millis(END - 300_000))}" in said, said
    assert "archive/payments was never brought up to Kafka" in said
    assert PAUSED in said and "look at the last run of archive__payments" in said


def test_a_wait_for_nothing_ends_in_an_answer_that_names_the_dag_to_look_at() -> None:
    trigger = deferred(waiting())
    trigger.ends = time.time() - 1
    told = event(trigger)
    assert told["late"] == ["rides"]
    with pytest.raises(AirflowFailException) as failed:
        waiting().go_on(CONTEXT, told)
    for word in ("archive/rides was never brought up", iso(from_millis(END)), "2 hours", PAUSED, "clear this task"):
        assert word in str(failed.value)


def test_a_store_that_does_not_answer_ends_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    trigger, known = deferred(waiting()), runs.reached_by_topic
    answers = iter([TallyError("cannot open the control store"), TallyError("cannot open the control store")])

    def flaky() -> dict[str, int]:
        for error in answers:
            raise error
        return known()

    runs.note_reached("rides", END)
    monkeypatch.setattr(runs, "reached_by_topic", flaky)
    assert event(trigger)["late"] == []
    monkeypatch.setattr(runs, "reached_by_topic", lambda: (_ for _ in ()).throw(TallyError("gone")))
    monkeypatch.setattr(wait, "marks", Marks())
    trigger.ends = time.time() + 0.2
    assert event(trigger)["late"] == ["rides"], "and it is not for ever either"


def test_two_hundred_that_wait_ask_the_store_once_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "LOOK_SECONDS", 0.5)
    asked: list[int] = []
    monkeypatch.setattr(runs, "reached_by_topic", lambda: asked.append(1) or {})
    triggers = [ArchiveReached(["rides"], now_ms() + 10**6, time.time() + 10**3) for _ in range(200)]

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(anext(trigger.run())) for trigger in triggers]
        await asyncio.sleep(1.2)
        for task in tasks:
            task.cancel()

    asyncio.run(all_of_them())
    assert 2 <= len(asked) <= 5
