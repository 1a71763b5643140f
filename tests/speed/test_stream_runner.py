"""One stream in its driver: what it holds and lets go of when the control store, a lock or a fold stands in the way."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from tally.base.errors import StreamFailed
from tally.control import incidents, leases, streams
from tally.host import lock
from tally.speed import query as queries
from tally.speed.progress import CALM_SECONDS
from tally.speed.stream_runner import StreamRunner
from tally.speed.upkeep import keeper as keepers
from tally.speed.upkeep.keeper import Keeper


@dataclass
class Named:
    name: str = "trips"
    version: str = "v1"
    reads: tuple[Any, ...] = ()


@dataclass
class Hosting:
    """What a stream needs of its driver."""

    app: str = "tally"
    until_caught_up: bool = False
    spark: Any = None
    keeper: Keeper = field(default_factory=lambda: Keeper(SimpleNamespace(sparkContext=SimpleNamespace())))  # type: ignore[arg-type]

    def adopted_by(self, held: lock.Lock) -> None:
        pass

    def function(self, pipeline: Any) -> Any:
        return SimpleNamespace(pipeline=pipeline, definition=SimpleNamespace(pipeline=pipeline))


TABLE = ("speed", "trips", "v1")


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that were started; each is over when it is stopped."""
    names: list[str] = []

    def prepare(definition: Any, lease: leases.Lease) -> Any:
        return SimpleNamespace(target=SimpleNamespace(pipeline=definition.pipeline, lease=lease))

    def begin(ready: Any, *_: Any, **__: Any) -> Any:
        names.append(ready.target.pipeline.name)
        query = SimpleNamespace(isActive=True, status={"isTriggerActive": False, "message": ""}, lastProgress=None)
        query.stop = lambda: setattr(query, "isActive", False)
        return query

    monkeypatch.setenv("TALLY_SHARED", "false")  # what has no function has no parts
    monkeypatch.setattr(queries, "prepare", prepare)
    monkeypatch.setattr(queries, "begin", begin)
    return names


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str]) -> StreamRunner:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    return StreamRunner(Hosting(), Named())  # type: ignore[arg-type]


def refuse_once(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    """Have a call to the control store fail once, as while a disk is full or a database restarts."""
    real, failed = getattr(where, name), list[bool]()

    def call(*args: Any, **kwargs: Any) -> Any:
        if not failed:
            failed.append(True)
            raise OperationalError("update", {}, Exception("database is locked"))
        return real(*args, **kwargs)

    monkeypatch.setattr(where, name, call)


def test_a_store_that_fails_as_the_table_is_taken_delays_the_stream_and_no_more(
    runner: StreamRunner, monkeypatch: pytest.MonkeyPatch, begun: list[str]
) -> None:
    refuse_once(monkeypatch, leases, "take")
    with pytest.raises(OperationalError):
        runner.tend()
    assert not lock.is_held(lock.table_path(*TABLE)), "half a writer keeps nobody out"
    runner.tend()
    assert begun == ["trips"]
    assert (streams.stream("trips") or {})["state"] == "running"
    runner.writer.release()


@pytest.mark.parametrize("call", [(leases, "release"), (streams, "show")])
def test_a_store_that_fails_as_a_stream_is_stopped_does_not_keep_its_table(
    runner: StreamRunner, monkeypatch: pytest.MonkeyPatch, call: tuple[Any, str]
) -> None:
    runner.tend()
    streams.want("trips", "stopped", by="test", why="")
    refuse_once(monkeypatch, *call)
    with pytest.raises(OperationalError):
        runner.tend()
    runner.tend()
    assert not lock.is_held(lock.table_path(*TABLE))
    assert (streams.stream("trips") or {})["state"] == "stopped"


def test_a_stopped_stream_holds_its_table_until_the_fold_that_outlasts_it_is_over(
    runner: StreamRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    folding, over = threading.Event(), threading.Event()

    def tidy(*_: Any) -> None:
        folding.set()
        over.wait(30)

    monkeypatch.setattr(Keeper, "tidy", tidy)
    monkeypatch.setenv("TALLY_FOLD_AFTER_BATCHES", "1")
    runner.tend()
    keeper = runner.driver.keeper
    assert isinstance(keeper, keepers.Keeper) and runner.writer.lease is not None
    keeper.after(runner.pipeline, 1, runner.writer.lease)
    assert folding.wait(10)
    streams.want("trips", "stopped", by="test", why="")
    runner.tend()
    assert lock.is_held(lock.table_path(*TABLE)), "its driver's fold still writes it"
    over.set()
    keeper.jobs["trips"].result(10)
    runner.tend()
    assert not lock.is_held(lock.table_path(*TABLE))
    keeper.close()


def test_a_fold_that_waits_for_its_turn_is_taken_back_with_its_stream(runner: StreamRunner) -> None:
    over = threading.Event()
    keeper = runner.driver.keeper
    assert isinstance(keeper, keepers.Keeper)
    keeper.pool.submit(over.wait, 30)
    keeper.jobs["trips"] = keeper.pool.submit(lambda: None)
    assert keeper.leaves(runner.pipeline) and "trips" not in keeper.jobs
    over.set()
    keeper.close()


def test_a_stream_for_which_nothing_waits_is_well_again_without_a_micro_batch(
    runner: StreamRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At night no record comes: what failed before the query began is over once Kafka was asked, and told so."""
    runner.fail(StreamFailed("Kafka does not answer", pipeline="trips"))
    runner.tries.retry_at = 0.0
    runner.tend()
    assert runner.running is not None and incidents.opened("trips")
    runner.running.query.status.update(message="Initializing sources", isDataAvailable=False)
    runner.running.motion.began_at -= CALM_SECONDS + 1
    runner.tend()
    assert incidents.opened("trips"), "it has not asked Kafka yet"
    runner.running.query.status.update(message="Waiting for next trigger")
    runner.tend()
    row = streams.stream("trips") or {}
    assert (row["state"], row["failures"], row["reason"], runner.tries.failures) == ("running", 0, "", 0)
    assert not incidents.opened("trips") and runner.moved
    runner.writer.release()


def test_a_beat_that_meets_a_letting_go_is_no_takeover(runner: StreamRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pulse has read the lease, and beats it after the driver's loop has let go."""
    runner.tend()
    real = leases.beat

    def late(lease: leases.Lease) -> bool:
        runner.writer.release()
        return real(lease)

    monkeypatch.setattr(leases, "beat", late)
    runner.writer.beat()
    assert not runner.writer.fenced


def test_a_lease_that_another_took_is_a_takeover(runner: StreamRunner) -> None:
    runner.tend()
    leases.take("/".join(TABLE))
    runner.writer.beat()
    assert runner.writer.fenced
    runner.writer.release()


def test_a_query_that_ends_of_a_takeover_leaves_the_row_to_who_took_it(runner: StreamRunner) -> None:
    """Its own commit was refused before the pulse has noticed."""
    runner.tend()
    leases.take("/".join(TABLE))
    streams.show("trips", state="running", app="another")
    runner.running.query.isActive = False  # type: ignore[union-attr, misc]
    runner.running.query.exception = lambda: leases.Fenced("another writes this table now")  # type: ignore[union-attr]
    runner.tend()
    row = streams.stream("trips") or {}
    assert (row["state"], row["app"], row["failures"]) == ("running", "another", 0)
    assert not incidents.opened("trips") and runner.running is None
