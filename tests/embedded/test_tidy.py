"""What the embedded Airflow forgets before it starts: its own old runs and logs, and nothing that is not its own."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from tally.base.settings import Settings, settings
from tally.embedded import airflow
from tally.embedded.tidy import database, drop_logs, tidy

DAYS = 86_400.0
RUN = (
    "INSERT INTO dag_run (dag_id, run_id, run_type, run_after, start_date, state, logical_date, clear_number,"
    " queued_at, log_template_id, updated_at) SELECT 'streams', ?,"
    " 'manual', d, d, 'success', d, 0, d, 1, d FROM (SELECT ? AS d)"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", raising=False)
    return settings()


def with_history(run: Settings, migrated: dict[str, str]) -> Path:
    """A home whose Airflow ran forty days ago and yesterday; a log of the older run."""
    file = database(run)
    file.parent.mkdir(parents=True)
    file.write_bytes(Path(migrated["AIRFLOW_HOME"], "airflow.db").read_bytes())
    ran(file)
    log = file.parent / "logs" / "dag_id=streams" / "run_id=old" / "task_id=act" / "attempt=1.log"
    aged(log, 40)
    aged(file.parent / "tidied", 2)
    return log


def ran(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        for name, age in (("old", 40), ("newer", 39), ("new", 1)):
            at = time.strftime("%Y-%m-%d %H:%M:%S.000000", time.gmtime(time.time() - age * DAYS))
            connection.execute(RUN, (name, at))


def runs(file: Path) -> set[str]:
    with sqlite3.connect(file) as connection:
        return {name for (name,) in connection.execute("SELECT run_id FROM dag_run")}


def aged(file: Path, days: float) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("said")
    os.utime(file, (time.time() - days * DAYS,) * 2)


def test_its_own_old_runs_and_logs_go_once_a_day(run: Settings, airflow_database: dict[str, str]) -> None:
    log = with_history(run, airflow_database)
    env = airflow.environment(run, 4242)
    assert "and 1 logs as old" in tidy(run, env)
    assert runs(database(run)) == {"new"} and not log.exists()
    aged(log, 40)
    assert tidy(run, env) == "" and log.exists()


def test_a_database_that_a_person_named_is_somebodys(
    run: Settings, airflow_database: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = with_history(run, airflow_database)
    theirs = tmp_path / "theirs.db"
    theirs.write_bytes(Path(airflow_database["AIRFLOW_HOME"], "airflow.db").read_bytes())
    ran(theirs)
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", f"sqlite:///{theirs}")
    assert tidy(run, airflow.environment(run, 4242)) == ""
    assert len(runs(theirs)) == len(runs(database(run))) == 3 and log.exists()


def test_a_new_home_is_not_kept_waiting(run: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    database(run).parent.mkdir(parents=True)
    database(run).touch()
    monkeypatch.setattr("tally.embedded.tidy.clean", lambda *_: pytest.fail("nothing is old here"))
    assert tidy(run, airflow.environment(run, 4242)) == ""
    assert tidy(run, airflow.environment(run, 4242)) == ""


def test_what_cannot_be_tidied_is_said_and_keeps_nothing_from_starting(run: Settings) -> None:
    database(run).parent.mkdir(parents=True)
    database(run).write_text("no database")
    aged(run.home / "airflow" / "tidied", 2)
    assert "airflow db clean ended with" in tidy(run, airflow.environment(run, 4242))


def test_old_task_logs_go_with_the_folders_that_they_leave_empty(tmp_path: Path) -> None:
    old = tmp_path / "dag_id=streams" / "run_id=a" / "task_id=x" / "attempt=1.log"
    new = tmp_path / "dag_id=streams" / "run_id=b" / "task_id=x" / "attempt=1.log"
    other = tmp_path / "scheduler" / "latest.log"
    for file, age in ((old, 10.0), (new, 1000.0), (other, 10.0)):
        file.parent.mkdir(parents=True)
        file.write_text("said")
        os.utime(file, (age, age))
    assert drop_logs(tmp_path, 100.0) == 1
    assert new.exists() and other.exists() and not (tmp_path / "dag_id=streams" / "run_id=a").exists()
    assert drop_logs(tmp_path / "never", 100.0) == 0
