"""Deadlines as the scheduler works them out, in an Airflow database: who has one, from when, and what a miss says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from tally.base.settings import REPO
from tally.control import incidents

# Runs of each kind, made as the scheduler makes them; what deadline each got.
RUNS = """
import json, sys
from datetime import datetime, timedelta, UTC
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models import DagRun
from airflow.models.dagbag import DBDagBag
from airflow.models.deadline import Deadline
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from airflow.dag_processing.bundles.manager import DagBundlesManager

DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(DagBag(sys.argv[1], bundle_name="dags-folder"), "dags-folder", None)
due = datetime(2026, 1, 2, 11, tzinfo=UTC)
found = {}
with create_session() as session:
    dag = DBDagBag().get_latest_version_of_dag("batch__vendor_trips", session=session)
    for at, kind in enumerate(["SCHEDULED", "SCHEDULED", "MANUAL", "BACKFILL_JOB"]):
        after = due + timedelta(hours=at)
        interval = (after - timedelta(hours=1), after)
        run = dag.create_dagrun(
            run_id=f"{at}", run_type=DagRunType[kind], run_after=after, state=DagRunState.QUEUED, session=session,
            logical_date=interval[0], data_interval=interval,
            triggered_by=DagRunTriggeredByType.TEST,
        )
        session.flush()
        times = session.query(Deadline).filter(Deadline.dagrun_id == run.id).all()
        found[f"{at} {kind}"] = [(one.deadline_time - after).total_seconds() for one in times]
    session.rollback()
print(json.dumps(found))
"""


# The streams dag with a step that fails, once and for all.
FAILS = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
from tally.base.errors import AnswerIsNo
from tally.orchestration import steps
def fails():
    raise AnswerIsNo("no driver comes up")
steps.act = fails
run = DagBag(sys.argv[1]).dags["streams"].test()
print(json.dumps({"run": run.state, **{ti.task_id: ti.state for ti in run.get_task_instances()}}))
"""


@pytest.fixture
def airflow(airflow_database: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of an Airflow with a deadline, and with no stream to look at."""
    chosen = {"TALLY_DEADLINE": "20 minutes", "TALLY_FRESHNESS": "", "TALLY_HOME": str(tmp_path)}
    return os.environ | airflow_database | chosen


def ran(env: dict[str, str], *arguments: str) -> str:
    """The last line that a Python process says."""
    done = subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return (done.stdout.splitlines() or [""])[-1]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    monkeypatch.delenv("TALLY_DEADLINE", raising=False)


def test_runs_of_the_clock_have_a_deadline_and_a_persons_have_none(airflow: dict[str, str]) -> None:
    assert json.loads(ran(airflow, "-c", RUNS, str(REPO / "dags" / "batch.py"))) == {
        "0 SCHEDULED": [],  # nobody was promised the first
        "1 SCHEDULED": [1200.0],
        "2 MANUAL": [],
        "3 BACKFILL_JOB": [],
    }


def test_people_are_told_though_a_step_failed_and_the_run_stays_red(airflow: dict[str, str]) -> None:
    found = json.loads(ran(airflow, "-c", FAILS, str(REPO / "dags" / "streams.py")))
    assert found == {"run": "failed", "act": "failed", "tell": "success"}


def test_a_miss_opens_an_incident_and_a_green_run_of_that_dag_closes_it() -> None:
    from tally.orchestration.deadline import in_time, missed

    due = datetime(2026, 1, 2, 11, tzinfo=UTC).isoformat()
    for name in ("trips", "zones"):
        run = {"dag_id": f"batch__{name}", "dag_run_id": "r1", "run_after": due}
        asyncio.run(missed(name, "20 minutes", {"dag_run": run}))
    (batch,) = incidents.opened("trips")
    assert batch.cause == "batch run is late"
    assert all(text in batch.evidence for text in ("batch__trips", "r1", due, "20 minutes"))
    in_time({"dag": SimpleNamespace(dag_id="batch__trips"), "run_id": "r2"})
    (left,) = incidents.opened()
    assert left.pipeline == "zones"
    assert incidents.history("trips")[0].done == "run r2 is over"
