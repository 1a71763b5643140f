"""The port of this home's Airflow: the configured one or an error, and without one a free port and a word on it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.embedded import airflow


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def test_a_configured_port_that_is_busy_is_named_with_its_setting(busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_AIRFLOW_PORT", str(busy))
    with pytest.raises(TallyError, match=f"TALLY_AIRFLOW_PORT: port {busy} .* in use"):
        airflow.choose_port()


def test_without_a_configured_port_a_free_one_is_taken_and_said(busy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TALLY_AIRFLOW_PORT", raising=False)
    monkeypatch.setattr(airflow, "DEFAULT_PORT", busy)
    port, note = airflow.choose_port()
    assert port != busy
    assert str(busy) in note and str(port) in note and "TALLY_AIRFLOW_PORT" in note


def test_its_environment_is_this_homes_and_keeps_what_a_person_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "16")
    monkeypatch.setenv("AIRFLOW_HOME", "/somewhere/else")
    env = airflow.environment(settings(), 4242)
    assert env["AIRFLOW_HOME"] == str(tmp_path / "airflow")
    assert env["AIRFLOW__CORE__PARALLELISM"] == "16"
    assert env["AIRFLOW__API__PORT"] == "4242"
    assert {env[f"TALLY_{kind}_POOL"] for kind in ("SPARK", "BACKFILL", "SUPERVISION")} == set(airflow.POOLS)
    assert len(airflow.POOLS) < int(env["AIRFLOW__CORE__PARALLELISM"]), "with one slot each, no pool fills the executor"


def test_nothing_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    assert airflow.stop() is False
