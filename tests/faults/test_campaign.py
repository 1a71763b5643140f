"""The campaign's short form: two kills of a real driver; a run that puts no fault, or sends nothing, does not pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from faults import invariants
from faults.kinds import kills
from faults.producer import TOPICS
from faults.run import Kind, Run, carry_out
from faults.settle import settled
from faults.tables import Seen


def test_a_run_without_an_event_or_without_a_fault_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {broken.what for broken in invariants.check([], Seen("shop_minutes")).broken}
    assert "no valid event was sent: nothing is proven" in found

    @contextmanager
    def no_stack(*_: object) -> Iterator[Any]:
        yield SimpleNamespace(bootstrap="127.0.0.1:1", pipelines=())

    for name in ("running", "Stack", "Sender", "settle"):
        monkeypatch.setattr(f"faults.run.{name}", no_stack if name == "running" else Mock())
    monkeypatch.setattr(Run, "moves", lambda _: True)
    idle = carry_out(Kind(name="nothing", fault=lambda _: None), seed=1)
    assert [str(one) for one in idle.all_broken] == ["I5 -: nothing was broken: what holds is not proven"]
    assert not carry_out(Kind(name="nothing", fault=lambda _: None, breaks=False), seed=1).all_broken


def two_kills(run: Run) -> None:
    kills.at_point(run, "speed.after_commit")
    kills.kill_all(run.stack)


def test_two_kills_lose_and_double_nothing(spark: SparkSession, broker: str) -> None:
    """One pipeline, a kill between commit and ledger, one at any moment, and every invariant at the end."""
    here = {"TALLY_KAFKA": broker}  # the session's broker and Spark: nobody kills these
    kind = Kind(name="two kills", fault=two_kills, pipelines=("shop_minutes",), settings=here)
    try:
        result = carry_out(kind, seed=1, settled=settled)
    finally:
        for gone in AdminClient({"bootstrap.servers": broker}).delete_topics(list(TOPICS)).values():
            gone.exception(15)
    assert result.all_broken == []
    assert [heal.point for heal in result.heals] == ["speed.after_commit"]
    totals = result.totals()
    assert totals["events"] > 500 and totals["late"] > 5 and totals["again"] > 5 and totals["refused"] > 2
    assert (totals["lost"], totals["doubled"]) == (0, 0)
