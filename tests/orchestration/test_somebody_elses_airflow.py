"""In an Airflow that is not its own, Tally reads, changes and cleans nothing of what is not Tally's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tally.base.settings import REPO

# A foreign DAG's run that ended long ago, with its log; then each Python task of `maintain`, as its worker runs it.
NIGHT = """
import json, os, sys, time
from datetime import UTC, datetime, timedelta
from pathlib import Path
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType

old = datetime.now(UTC) - timedelta(days=400)
log = Path(os.environ["AIRFLOW_HOME"]) / "logs" / "dag_id=payroll" / "run_id=a" / "task_id=pay" / "attempt=1.log"
log.parent.mkdir(parents=True)
log.write_text("paid")
os.utime(log, (old.timestamp(), old.timestamp()))
with create_session() as session:
    session.add(DagBundleModel(name="theirs"))
    session.flush()
    session.add(DagModel(dag_id="payroll", bundle_name="theirs", fileloc="payroll.py"))
    session.flush()
    for name, when in (("a", old), ("b", old + timedelta(days=1))):
        session.add(DagRun(
            dag_id="payroll", run_id=name, run_type=DagRunType.MANUAL, logical_date=when, run_after=when,
            start_date=when, state=DagRunState.SUCCESS, triggered_by=DagRunTriggeredByType.TEST,
        ))
done = []
for task in DagBag(sys.argv[1]).dags["maintain"].tasks:
    if task.task_type == "PythonOperator":
        task.python_callable(*task.op_args, **task.op_kwargs)
        done.append(task.task_id)
with create_session() as session:
    runs = sorted(session.scalars(sa.select(DagRun.run_id).where(DagRun.dag_id == "payroll")))
print(json.dumps({"tasks": done, "runs": runs, "log": log.exists()}))
"""
# What a worker of Airflow finds in place of its database's address: a task is to have no way around it.
BLOCK = re.compile(r"not-allowed|SQL_ALCHEMY_CONN|\"db\", \"clean\"|create_session|airflow\.settings")


def test_a_night_of_maintenance_leaves_foreign_runs_and_logs_alone(
    airflow_database: dict[str, str], tmp_path: Path
) -> None:
    own = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db"}
    (tmp_path / "airflow.db").write_bytes(Path(airflow_database["AIRFLOW_HOME"], "airflow.db").read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", NIGHT, str(REPO / "dags" / "maintain.py")],
        env=os.environ | airflow_database | own | {"TALLY_HOME": str(tmp_path / "home")},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"tasks": ["control_store"], "runs": ["a", "b"], "log": True}


def test_no_task_has_a_way_around_the_database_block() -> None:
    for file in [*(REPO / "dags").glob("*.py"), *(REPO / "include" / "tally" / "orchestration").glob("*.py")]:
        assert not BLOCK.search(file.read_text()), file
