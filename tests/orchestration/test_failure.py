"""A red task, a paused DAG, a definition that does not load: each is told, by a real Airflow, with its page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tally.base.settings import REPO
from tally.control import incidents
from tally.orchestration.failure import out_of_time, recovered, red, red_unless_told

# A DAG's run in this process, with the catalogue and the home of the environment; what became of each task.
RUN = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
run = DagBag(sys.argv[1]).dags[sys.argv[2]].test()
print(json.dumps({ti.task_id: ti.state for ti in run.get_task_instances()}))
"""
# The DAGs as their processor keeps them, one of them paused; then a stream whose batch was due long ago.
PAUSED = """
import sys
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from tally.base.duration import from_millis
from tally.catalog.load import catalogue
from tally.catalog.schedule import every
from tally.control import ledger
from tally.control.store import now_ms
from tally.supervise.sealing import last_due
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(DagBag(sys.argv[1], bundle_name="dags-folder"), "dags-folder", None)
with create_session() as session:
    for name in ("batch__vendor_trips", "archive__rides"):
        session.get(DagModel, name).is_paused = name.startswith("archive")
due = last_due(every(catalogue().pipeline("vendor_trips")), from_millis(now_ms() - 3_600_000))
ledger.record([ledger.MicroBatch(
    pipeline="vendor_trips", version=catalogue().pipeline("vendor_trips").version, generation=1, batch=0, ranges={},
    late_watermark=0, watermark=due - 1_800_000, rows=1, delta_version=0, committed_at=due - 1,
)])
"""
# In place of looking after the driver: a question about a DAG that is not there.
ACT = """
import sys
from airflow.sdk import get_current_context
from tally.orchestration import steps
from tally.orchestration.ask import of_dag
steps.act = lambda: open(sys.argv[3], "w").write(of_dag(get_current_context()["ti"], "batch__nowhere"))
"""


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    for name in ("TALLY_CONTROL", "TALLY_DEADLINE", "TALLY_BATCH_EVERY", "TALLY_WEBHOOK", "TALLY_NOTIFIERS"):
        monkeypatch.delenv(name, raising=False)


def ran(script: str, env: dict[str, str], *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"TALLY_FRESHNESS": ""} | env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((done.stdout.splitlines() or ["null"])[-1]) if script == RUN else None


def test_a_broken_definition_keeps_its_dag_which_fails_and_says_why(
    airflow_database: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "spark"
    shutil.copytree(REPO / "spark", folder)
    (folder / "pipelines" / "zone_demand.py").write_text("X = = 1\n")
    env = airflow_database | {"TALLY_CATALOG": str(folder), "TALLY_DEADLINE": ""}
    assert ran(RUN, env, str(REPO / "dags" / "batch.py"), "batch__zone_demand") == {"definition": "failed"}
    (one,) = incidents.history("zone_demand")  # dag.test() runs it as a person would
    assert one.cause == "batch by hand failed" and "zone_demand.py:1: invalid syntax" in one.evidence
    assert "/dags/batch__zone_demand/runs/" in one.evidence and "/tasks/definition" in one.cure


def test_the_run_that_tells_asks_airflow_why_nothing_is_sealed(
    airflow_database: dict[str, str], tmp_path: Path
) -> None:
    airflow = tmp_path / "airflow"
    airflow.mkdir()
    shutil.copy(Path(airflow_database["AIRFLOW_HOME"], "airflow.db"), airflow)
    own = {"AIRFLOW_HOME": str(airflow), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{airflow}/airflow.db"}
    env = airflow_database | own
    ran(PAUSED, env, str(REPO / "dags"))
    script = RUN.replace("run = ", ACT + "run = ")
    done = subprocess.run(
        [sys.executable, "-c", script, str(REPO / "dags" / "streams.py"), "streams", str(tmp_path / "said")],
        env=os.environ | env | {"TALLY_FRESHNESS": ""}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (paused,) = incidents.opened("vendor_trips")
    assert paused.cause == "sealing has stopped"
    page = "http://localhost:8080/dags/archive__rides"
    assert paused.evidence.endswith(f"Cause: archive__rides is paused ({page})")
    said = (tmp_path / "said").read_text()
    assert said == "Airflow has no batch__nowhere: is there an import error of its file?"


def context(dag_id: str, error: BaseException | None, schedule: Any = "0 * * * *", **params: str) -> dict[str, Any]:
    task = SimpleNamespace(dag_id=dag_id, task_id="t", log_url=f"http://a/dags/{dag_id}/runs/r/tasks/t")
    dag = SimpleNamespace(dag_id=dag_id, schedule=schedule)
    return {"ti": task, "dag": dag, "run_id": "r", "params": params, **({"exception": error} if error else {})}


def test_a_red_task_is_one_incident_until_a_run_is_green() -> None:
    red(context("batch__trips", RuntimeError("no disk\nand a trace")))
    red(context("batch__trips", None))
    red(context("batch__zones", KeyboardInterrupt()))  # says nothing
    batch, zones = incidents.opened()
    assert (batch.cause, batch.times, zones.cause) == ("batch failed", 2, "batch failed")
    assert "task t: KeyboardInterrupt (" in zones.evidence
    assert "ended from outside" in batch.evidence and "http://a/dags/batch__trips/runs/r/tasks/t" in batch.evidence
    recovered(context("batch__trips", None))
    assert [one.pipeline for one in incidents.opened()] == ["zones"]


def test_a_red_archive_is_one_incident_however_many_pipelines_read_its_topic() -> None:
    red(context("archive__rides", RuntimeError("no such topic")))
    red(context("archive__payments", RuntimeError("no such topic")))
    red(context("archive__" + "x" * 200, RuntimeError("no such topic")))
    opened = [(one.pipeline, one.cause) for one in incidents.opened()]
    assert opened[:2] == [("", "archive of rides failed"), ("", "archive of payments failed")]
    assert len(opened[2][1]) == 64, "no store takes a longer one"
    for dag_id in ("archive__rides", "archive__" + "x" * 200):
        recovered(context(dag_id, None))
    assert [one.cause for one in incidents.opened()] == ["archive of payments failed"]


def test_each_task_of_the_streams_dag_is_an_incident_of_its_own_until_it_is_green(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tally.orchestration import steps

    for name in ("act", "tell"):
        failed = context("streams", RuntimeError("no such module"))
        failed["ti"].task_id = name
        red(failed)
    assert [one.cause for one in incidents.opened()] == ["streams act failed", "streams tell failed"]
    for name in ("say_states", "judge_freshness", "judge_sealing"):
        monkeypatch.setattr(steps, name, lambda: None)
    steps.tell()
    assert [one.cause for one in incidents.opened()] == ["streams act failed"]


def test_a_persons_run_is_news_and_leaves_nothing_open() -> None:
    red(context("backfill", RuntimeError("no disk"), None, pipeline="trips"))
    assert incidents.opened() == []
    (one,) = incidents.history("trips")
    assert one.cause == "backfill failed" and one.closed_at


def test_a_persons_run_of_a_dag_with_a_clock_neither_opens_nor_closes_what_the_clocks_runs_do() -> None:
    red(context("batch__trips", RuntimeError("no disk")))
    red({**context("batch__trips", RuntimeError("no such field")), "dag_run": SimpleNamespace(run_type="manual")})
    assert [(one.cause, one.times) for one in incidents.opened("trips")] == [("batch failed", 1)]
    assert [one.cause for one in incidents.history("trips")] == ["batch failed", "batch by hand failed"]


def test_a_run_that_airflow_ends_for_its_length_is_told() -> None:
    late = {**context("batch__trips", None), "reason": "timed_out"}
    late["dag"].dagrun_timeout = timedelta(hours=6)
    out_of_time(late | {"reason": "task_failure"})
    assert incidents.opened() == [], "its red task has told"
    out_of_time(late)
    (one,) = incidents.opened("trips")
    assert one.cause == "batch failed" and "not over in 6 hours" in one.evidence


def test_an_answer_that_tells_of_itself_is_not_told_twice() -> None:
    red_unless_told(context("batch__trips", AirflowFailException("held")))
    assert incidents.history() == []
    red_unless_told(context("batch__trips", AirflowException("the lock is held")))
    assert [one.cause for one in incidents.opened("trips")] == ["batch failed"]
