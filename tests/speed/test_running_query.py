"""A query that runs is asked how it is: its topic is another one now, it is stuck; and it is let go of in time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tally.base.errors import DataLost, TallyError
from tally.sources import kafka
from tally.speed import running_query
from tally.speed.progress import STUCK_SECONDS
from tally.speed.running_query import IDENTITY_SECONDS, RunningQuery


@pytest.fixture
def running() -> RunningQuery:
    query = SimpleNamespace(isActive=True, status={"isTriggerActive": False}, lastProgress=None, stopped=0)
    query.stop = lambda: setattr(query, "stopped", query.stopped + 1)
    pipeline = SimpleNamespace(name="trips", reads=[SimpleNamespace(name="rides")])
    return RunningQuery(query, pipeline, SimpleNamespace())  # type: ignore[arg-type]


def recreated(name: str, *_: Any) -> None:
    raise DataLost(f"topic {name} is another one now")


def silent(*_: Any) -> None:
    raise TallyError("Kafka does not answer")


def test_a_recreated_topic_is_told_once_it_is_time_to_ask(
    running: RunningQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "check_identity", recreated)
    assert running.lost() is None, "each look would cost a request"
    running.checked_at -= IDENTITY_SECONDS + 1
    assert "topic rides" in str(running.lost())
    assert running.lost() is None


def test_a_kafka_that_does_not_answer_is_no_loss(running: RunningQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "check_identity", silent)
    running.checked_at -= IDENTITY_SECONDS + 1
    assert running.lost() is None


def test_one_of_which_nothing_ends_is_stuck(running: RunningQuery) -> None:
    assert running.stuck() is None
    running.motion.moved_at -= STUCK_SECONDS + 1
    said = running.stuck()
    assert said is not None and said.pipeline == "trips" and "stood still" in said.message and said.cure


def test_one_is_ended_between_two_micro_batches_or_after_a_while(
    running: RunningQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_query, "LAST_BATCH_SECONDS", 0.1)
    running.let_go()
    assert running.query.stopped == 1
    running.query.status["isTriggerActive"] = True
    running.let_go()
    assert running.query.stopped == 2


def test_one_that_does_not_answer_is_let_go_of_all_the_same(running: RunningQuery) -> None:
    del running.query.status
    running.let_go()
