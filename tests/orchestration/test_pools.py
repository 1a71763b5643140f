"""What Airflow's scheduler starts next, by its own choice, while a backfill of fifty chunks is under way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tally.base.settings import REPO

# The DAGs in a database; a run of each with tasks that are ready, fifty chunks of a backfill among them, of which some
# are in a state already. What the scheduler queues, round by round, where whatever it queues is over in the next one.
NEXT = """
import json, sys
from datetime import UTC, datetime
import sqlalchemy as sa
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.executors.local_executor import LocalExecutor
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag_version import DagVersion
from airflow.models.dagbag import DBDagBag
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType

asked = json.loads(sys.argv[2])
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(DagBag(sys.argv[1], bundle_name="dags-folder"), "dags-folder", None)
with create_session() as session:
    for name in asked["pools"]:
        Pool.create_or_update_pool(name, slots=1, description="", include_deferred=False, session=session)

def run(session, dag_id, kind, at, conf=None):
    dag = DBDagBag().get_latest_version_of_dag(dag_id, session=session)
    made = dag.create_dagrun(
        run_id=f"{kind.value}-{dag_id}", run_type=kind, run_after=at, state=DagRunState.RUNNING, session=session,
        logical_date=at, data_interval=(at, at), triggered_by=DagRunTriggeredByType.TEST, start_date=at, conf=conf,
    )
    return dag, made

with create_session() as session:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    form = {"pipeline": "vendor_trips", "from": "2026-01-01T00:00:00Z", "to": "2026-01-03T02:00:00Z"}
    dag, backfill = run(session, "backfill", DagRunType.MANUAL, early, form)
    version = DagVersion.get_latest_version("backfill", session=session).id
    for one in backfill.get_task_instances(session=session):
        if one.map_index == -1 and one.task_id.startswith("chunk."):
            session.delete(one)
    session.flush()
    for step in ("restate", "compare", "judge", "seal"):
        for at in range(50):
            task = dag.get_task(f"chunk.{step}")
            made = TaskInstance(task, dag_version_id=version, run_id=backfill.run_id, map_index=at)
            session.add(made)
            if step == "restate":
                made.state = TaskInstanceState.RUNNING if at == 0 else TaskInstanceState.SCHEDULED
            if [step, at] in asked["ready"]:
                made.state = TaskInstanceState.SCHEDULED
    for dag_id, task in asked["others"]:
        _, made = run(session, dag_id, DagRunType.SCHEDULED, late)
        for one in made.get_task_instances(session=session):
            if one.task_id == task:
                one.state = TaskInstanceState.SCHEDULED
    session.flush()
    scheduler = SchedulerJobRunner(Job(), executors=[LocalExecutor(parallelism=asked["slots"])])
    rounds = []
    for _ in range(asked["rounds"]):
        queued = scheduler._executable_task_instances_to_queued(max_tis=asked["slots"], session=session)
        rounds.append([[one.dag_id, one.task_id, one.map_index] for one in queued])
        over = [TaskInstanceState.QUEUED, *([TaskInstanceState.RUNNING] if asked["ends"] else [])]
        now = sa.update(TaskInstance).where(TaskInstance.state.in_(over)).values(state=TaskInstanceState.SUCCESS)
        session.execute(now)
    session.rollback()
print(json.dumps(rounds))
"""
LIVE = ["batch__vendor_trips", "restate"]
STREAMS = ["streams", "act"]
ARCHIVE = ["archive__rides", "ingest"]
OTHERS = [LIVE, STREAMS, ARCHIVE]


@pytest.fixture
def airflow(airflow_database: dict[str, str], migrated: Path, tmp_path: Path) -> dict[str, str]:
    """With a database of its own: in the session's there are DAGs of other tests, paused."""
    shutil.copy(migrated, tmp_path)
    own = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db"}
    own |= {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False", "TALLY_HOME": str(tmp_path / "home")}
    return {**os.environ, **airflow_database, **own}


def queued(env: dict[str, str], **asked: Any) -> list[list[tuple[str, str, int]]]:
    given = {"pools": [], "others": OTHERS, "ready": [], "slots": 32, "rounds": 1, "ends": False} | asked
    done = subprocess.run(
        [sys.executable, "-c", NEXT, str(REPO / "dags"), json.dumps(given)],
        env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [[(dag, task, at) for dag, task, at in one] for one in json.loads(done.stdout.splitlines()[-1])]


def test_a_live_batch_starts_beside_a_backfill_of_fifty_chunks(airflow: dict[str, str]) -> None:
    """Three pools of one slot each: at once, though a chunk holds the backfill's slot for as long as it takes."""
    pools = {"TALLY_SPARK_POOL": "spark", "TALLY_BACKFILL_POOL": "backfill", "TALLY_SUPERVISION_POOL": "streams"}
    first, second = queued(airflow | pools, pools=list(pools.values()), slots=4, rounds=2)
    assert {one[:2] for one in first} == {tuple(STREAMS), tuple(ARCHIVE)}, "the archive first, of those with one slot"
    assert [one[:2] for one in second] == [tuple(LIVE)], "and no chunk: one is under way"


def test_in_one_pool_the_next_slot_is_the_live_batch_s_and_a_chunk_that_is_begun_is_ended(
    airflow: dict[str, str],
) -> None:
    pool = dict.fromkeys(("TALLY_SPARK_POOL", "TALLY_BACKFILL_POOL"), "spark")
    ready = [["compare", 7]]
    rounds = queued(airflow | pool, pools=["spark"], others=[LIVE], ready=ready, slots=4, rounds=4, ends=True)
    assert rounds[0] == [], "its only slot is a chunk's"
    assert [one[:2] for one in rounds[1]] == [tuple(LIVE)]
    assert rounds[2] == [("backfill", "chunk.compare", 7)], "before the restatement of the next chunk"
    assert rounds[3] == [("backfill", "chunk.restate", 1)]
