"""The DAGs as Airflow sees them: exactly these, without import errors, and nothing is opened when they are parsed."""

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

import definitions
import pytest

from tally.base.settings import REPO
from tally.catalog.cron import minute_of
from tally.catalog.load import load

CATALOGUE = load(REPO / "spark")
PIPELINES = sorted(CATALOGUE.pipelines)
ALONE = {"streams", "control", "plan", "reconcile", "backfill", "maintain"}
FORMS = {"control", "plan", "reconcile", "backfill"}
BATCHES = {f"batch__{name}" for name in PIPELINES}
ARCHIVES = {"archive__rides", "archive__payments"}
IDS = ALONE | BATCHES | ARCHIVES

# What a parse must not do is made impossible here, and what it leaves behind is told.
PARSE = """
import json, socket, subprocess, sys
NOT_WANTED = ("tally.control", "tally.speed", "tally.batch", "tally.sources", "tally.reconcile", "confluent")
from airflow.dag_processing.dagbag import DagBag  # Airflow itself asks the machine what it is
def refuse(*given, **_):
    raise AssertionError(f"parsing opens a connection or starts a process: {given[1:]}")
socket.socket.connect = refuse
subprocess.Popen.__init__ = refuse
bag = DagBag(sys.argv[1])
from pyspark.sql import SparkSession
print(json.dumps({
    "dags": sorted(bag.dags), "errors": bag.import_errors,
    "session": SparkSession.getActiveSession() is not None,
    "modules": [n for n in sys.modules if n.startswith(NOT_WANTED)],
}))
"""


@pytest.fixture(scope="module")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("airflow")
    os.environ.setdefault("AIRFLOW_HOME", str(home))
    os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    return home


@pytest.fixture(scope="module")
def dags(airflow_home: Path) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(REPO / "dags"))
    assert bag.import_errors == {}
    return dict(bag.dags)


def test_exactly_these_dags(dags: dict[str, Any]) -> None:
    assert set(dags) == IDS


def parsed(folder: Path, **environment: str) -> dict[str, Any]:
    """What a process of its own finds in dags/, with a home and an Airflow in the folder."""
    homes = {"TALLY_HOME": str(folder / "home"), "AIRFLOW_HOME": str(folder / "airflow")}
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(REPO / "dags")],
        env=os.environ | homes | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_parsing_opens_no_session_no_network_and_no_control_store(tmp_path: Path) -> None:
    assert parsed(tmp_path) == {"dags": sorted(IDS), "errors": {}, "session": False, "modules": []}
    assert not (tmp_path / "home").exists()


def test_a_broken_definition_is_an_import_error_and_takes_no_other_dag_away(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    shutil.copytree(REPO / "spark", folder)
    (folder / "pipelines" / "supply.py").write_text("X = = 1\n")
    found = parsed(tmp_path, TALLY_CATALOG=str(folder))
    assert found["dags"] == sorted(IDS | {"batch__supply"})
    ((file, told),) = found["errors"].items()
    assert Path(file).name == "definitions.py" and "supply.py:1: invalid syntax" in told


def test_a_topic_that_only_a_broken_definition_reads_is_archived_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, airflow_home: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("TALLY_CATALOG", str(folder := tmp_path / "spark"))
    shutil.copytree(REPO / "spark", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pipelines" / "paid_rides.py").unlink()  # the one that reads payments
    assert set(DagBag(str(REPO / "dags" / "archive.py")).dags) == {"archive__rides"}
    (folder / "pipelines" / "paid_rides.py").write_text("X = = 1\n")
    assert set(DagBag(str(REPO / "dags" / "archive.py")).dags) == ARCHIVES


def test_a_catalogue_that_does_not_load_at_all_keeps_the_dag_of_each_pipeline(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    shutil.copytree(REPO / "spark", folder)
    (folder / "topics.py").write_text("X = = 1\n")
    found = parsed(tmp_path, TALLY_CATALOG=str(folder))
    assert found["dags"] == sorted(IDS - ARCHIVES), "which topics there are is not known"
    ((file, told),) = found["errors"].items()
    assert Path(file).name == "definitions.py" and "topics.py:1: invalid syntax" in told


def test_every_task_that_fails_tells_somebody(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            assert task.on_failure_callback, task
        green = dag.on_success_callback or []
        assert (dag.dag_id == "maintain" or "__" in dag.dag_id) == any(one.__name__ == "recovered" for one in green)


@pytest.mark.parametrize("dag_id", sorted(IDS))
def test_each_dag_has_what_its_reader_needs(dags: dict[str, Any], dag_id: str) -> None:
    dag = dags[dag_id]
    assert "tally" in dag.tags
    assert len(dag.tags) >= 2
    assert dag.doc_md and "Red" in dag.doc_md
    assert dag.description
    assert dag.catchup is False
    assert (dag.max_active_runs == 1) == (dag_id not in ("control", "plan")), "a form that only asks waits for no other"
    assert dag.dagrun_timeout is not None
    for task in dag.tasks:
        assert task.owner == "tally"
        assert task.doc_md
        assert task.execution_timeout is not None
        assert task.execution_timeout <= dag.dagrun_timeout


def test_infrastructure_is_retried_and_a_verdict_is_not(dags: dict[str, Any]) -> None:
    for dag in dags.values():
        for task in dag.tasks:
            # A verdict; and what its next turn does anyway.
            once = task.task_id.split(".")[-1] in ("judge", "tell") or (dag.dag_id, task.task_id) == ("streams", "act")
            assert task.retries == (0 if once else 2), task
            assert once or (task.retry_exponential_backoff and task.max_retry_delay <= timedelta(minutes=10))


def test_schedules(dags: dict[str, Any]) -> None:
    def summary(dag_id: str) -> str:
        return str(dags[dag_id].timetable)

    assert {dag_id for dag_id, dag in dags.items() if dag.schedule is None} == FORMS
    watched = dags["streams"].timetable
    (need,) = watched.asset_condition.objects
    assert (need.name, [watcher.name for watcher in need.watchers]) == ("streams_need_action", ["streams"])
    assert watched.timetable.expression == "*/5 * * * *", "the clock that catches a dead watcher"
    assert dags["maintain"].schedule == "30 3 * * *"
    for dag_id in ARCHIVES:
        assert dags[dag_id].schedule == "*/15 * * * *"
        assert dags[dag_id].start_date, "it makes up for a tick that was missed"
    assert dags["maintain"].start_date is None, "it does not"
    minutes = {name: summary(f"batch__{name}") for name in PIPELINES}
    for name, told in minutes.items():
        cron = f"{minute_of(name)} * * * *"
        assert f"CronDataIntervalTimetable(expression='{cron}', timezone='UTC')" in told
    assert len(set(minutes.values())) > len(PIPELINES) // 2, "they are spread over the hour"


def test_a_pipeline_may_have_a_schedule_and_a_deadline_of_its_own_and_is_found_by_team_and_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, airflow_home: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    folder = definitions.write(tmp_path / "spark")
    declared = 'key="zone", every="30 6 * * *", deadline="20 minutes", team="city", tier="gold"'
    definitions.edit(folder, 'key="zone"', declared)
    monkeypatch.setenv("TALLY_CATALOG", str(folder))
    (dag,) = DagBag(str(REPO / "dags" / "batch.py")).dags.values()
    assert "'30 6 * * *'" in str(dag.timetable), "a minute that somebody chose is taken at its word"
    assert dag.deadline[0].interval == timedelta(minutes=20)
    assert set(dag.tags) == {"tally", "batch", "demand", "topic:rides", "team:city", "tier:gold"}


def test_dags_are_found_by_topic(dags: dict[str, Any]) -> None:
    by_topic = {topic: {id for id, dag in dags.items() if f"topic:{topic}" in dag.tags} for topic in CATALOGUE.topics}
    assert by_topic == {
        "rides": {"archive__rides", *BATCHES},
        "payments": {"archive__payments", "batch__paid_rides"},
    }
    for dag_id in BATCHES:
        assert {"tally", "batch", dag_id.removeprefix("batch__")} < set(dags[dag_id].tags)


def test_who_is_first_where_a_slot_is_waited_for(dags: dict[str, Any]) -> None:
    """A stream that is down, a batch that is begun, an archive, a batch that is not, and last what was long ago."""
    from airflow.serialization.serialized_objects import DagSerialization

    def weights(*dag_ids: str) -> dict[str, int]:
        made = [DagSerialization.from_dict(DagSerialization.to_dict(dags[one])) for one in dag_ids]
        tasks = [task for dag in made for task in dag.tasks]
        return {task.task_id: task.weight_rule.get_weight(SimpleNamespace(task=task)) for task in tasks}

    tasks = [dags["backfill"].task_dict[name] for name in ("plan", "chunk.restate", "chunk.compare", "chunk.seal")]
    assert [task.weight_rule for task in tasks] == ["upstream"] * 4, "a chunk that is begun is ended first"
    live, late = weights(*ARCHIVES, *BATCHES).values(), weights("backfill", "reconcile", "maintain").values()
    assert min(weights("streams").values()) > max(live) and min(live) > max(late)
    rides, payments = (weights(f"archive__{topic}")["ingest"] for topic in ("rides", "payments"))
    assert rides > payments, "four pipelines read the one, and one the other"
    for archive in (rides, payments):
        before = {task for task, weight in weights("batch__vendor_trips").items() if weight > archive}
        assert before == {"compare", "judge", "seal"}, (
            "what is begun is ended, and what is not has more to state with it"
        )


def test_the_batch_schedule_is_a_setting(monkeypatch: pytest.MonkeyPatch, airflow_home: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("TALLY_BATCH_EVERY", "*/5 * * * *")
    bag = DagBag(str(REPO / "dags" / "batch.py"))
    assert all("'*/5 * * * *'" in str(dag.timetable) for dag in bag.dags.values())
    assert len(bag.dags) == len(PIPELINES)
    monkeypatch.setenv("TALLY_ARCHIVE_EVERY", "*/10 * * * *")
    assert {dag.schedule for dag in DagBag(str(REPO / "dags" / "archive.py")).dags.values()} == {"*/10 * * * *"}


@pytest.mark.parametrize("dag_id", sorted(IDS))
def test_each_dag_survives_serialisation(dags: dict[str, Any], dag_id: str) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    document = json.loads(json.dumps(DagSerialization.to_dict(dags[dag_id])))
    back = DagSerialization.from_dict(document)
    assert sorted(back.task_dict) == sorted(dags[dag_id].task_dict)
    for task_id, task in back.task_dict.items():
        assert task.downstream_task_ids == dags[dag_id].task_dict[task_id].downstream_task_ids


def test_assets_carry_the_lineage_from_topic_to_served(dags: dict[str, Any]) -> None:
    for pipeline in CATALOGUE.pipelines.values():
        batch = dags[f"batch__{pipeline.name}"].task_dict
        for topic in pipeline.reads:
            (ingest,) = dags[f"archive__{topic.name}"].tasks
            assert [asset.name for asset in ingest.inlets] == [f"topic/{topic.name}"]
            assert [asset.name for asset in ingest.outlets] == [f"archive/{topic.name}"]
        assert {a.name for a in batch["restate"].inlets} == {f"archive/{topic.name}" for topic in pipeline.reads}
        assert [asset.name for asset in batch["restate"].outlets] == [f"batch/{pipeline.name}"]
        assert [asset.name for asset in batch["compare"].inlets] == [f"batch/{pipeline.name}"]
        assert [asset.name for asset in batch["seal"].outlets] == [f"served/{pipeline.name}"]


def test_spark_work_is_a_spark_submit_in_the_pool(dags: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    spark = [task for dag in dags.values() for task in dag.tasks if isinstance(task, SparkSubmitOperator)]
    # An archive; restate and compare of a batch; of a form, compare, and restate and compare; two of the maintenance.
    assert len(spark) == len(ARCHIVES) + 2 * len(PIPELINES) + 1 + 2 + 2
    first = {"reconcile.py": "compare", "archive.py": "archive"}
    for task in spark:
        assert task.pool == "default_pool"
        assert task.first == first.get(Path(task.application).name, "")
        assert Path(task.application).is_file(), task.application


def test_what_can_wait_and_what_may_not_have_pools_of_their_own(
    monkeypatch: pytest.MonkeyPatch, airflow_home: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    for name in ("spark", "backfill", "supervision"):
        monkeypatch.setenv(f"TALLY_{name.upper()}_POOL", name)
    taken: dict[str, set[str]] = {}
    for dag in DagBag(str(REPO / "dags")).dags.values():
        for task in dag.tasks:
            taken.setdefault(dag.dag_id.split("__")[0], set()).add(task.pool)
    few = {"default_pool"}  # steps of seconds, which start no Spark
    assert taken == {
        "archive": {"spark"}, "batch": {"spark"} | few, "streams": {"supervision"}, "control": few, "plan": few,
        "reconcile": {"backfill"} | few, "backfill": {"backfill"} | few, "maintain": {"backfill"} | few,
    }  # fmt: skip


def test_one_task_at_a_time_writes_the_tables_of_a_pipeline(dags: dict[str, Any]) -> None:
    """Airflow's own backfill runs ten intervals at once: nine would wait at a lock, in a slot and a JVM each."""
    alone = {
        (id.split("__")[0], t.task_id) for id, dag in dags.items() for t in dag.tasks if t.max_active_tis_per_dag == 1
    }
    assert alone == {
        ("batch", "restate"), ("batch", "compare"), ("backfill", "chunk.restate"), ("backfill", "chunk.compare"),
    }  # fmt: skip
    assert all(dags[dag_id].max_active_runs == 1 for dag_id in ARCHIVES)


def test_the_backfill_form_is_typed(dags: dict[str, Any]) -> None:
    params = dags["backfill"].params
    assert params.get_param("pipeline").schema["enum"] == PIPELINES
    assert {params.get_param(name).schema["format"] for name in ("from", "to")} == {"date-time"}
    assert params.get_param("dry_run").schema["type"] == "boolean"


def test_the_form_of_a_reconciliation_takes_several_pipelines(dags: dict[str, Any]) -> None:
    from airflow.exceptions import ParamValidationError
    from airflow.serialization.serialized_objects import DagSerialization

    params = DagSerialization.from_dict(DagSerialization.to_dict(dags["reconcile"])).params

    def takes(**given: Any) -> bool:
        try:
            params.deep_merge(given).validate()
        except ParamValidationError:
            return False
        return True

    assert takes(pipelines=PIPELINES) and takes(pipelines=PIPELINES[:1], **{"from": "2026-11-01T10:00:00Z"})
    for wrong in ([], ["nobody"], PIPELINES[0], [PIPELINES[0]] * 2):
        assert not takes(pipelines=wrong)
    assert not takes(pipelines=PIPELINES, **{"from": "yesterday"})


def test_a_plan_is_the_dry_run_of_the_same_form_and_waits_for_no_backfill(dags: dict[str, Any]) -> None:
    plan, backfill = dags["plan"], dags["backfill"]
    fields = {name: backfill.params.get_param(name).schema for name in backfill.params if name != "dry_run"}
    assert {name: plan.params.get_param(name).schema for name in plan.params} == fields
    (task,) = plan.tasks
    assert task.op_kwargs["keywords"]["dry_run"] == "True"
    assert plan.max_active_runs > len(PIPELINES)


def test_the_control_form_is_typed_and_says_what_pausing_a_dag_does_not_do(dags: dict[str, Any]) -> None:
    dag = dags["control"]
    assert dag.params.get_param("pipeline").schema["enum"] == PIPELINES
    assert dag.params.get_param("action").schema["enum"] == ["pause", "resume", "restart", "stop"]
    assert "pausing a DAG does not" in dag.description
    assert "Pausing a DAG is not stopping a stream" in dag.doc_md


def test_incidents_are_told_whatever_came_before_and_a_failed_run_stays_red(dags: dict[str, Any]) -> None:
    tell = dags["streams"].task_dict["tell"]
    assert tell.is_teardown and not tell.on_failure_fail_dagrun
    assert tell.upstream_task_ids


@pytest.mark.parametrize("name", PIPELINES)
def test_numbers_have_a_deadline(dags: dict[str, Any], name: str) -> None:
    from airflow.serialization.decoders import decode_deadline_alert
    from airflow.serialization.serialized_objects import DagSerialization

    dag = dags[f"batch__{name}"]
    (encoded,) = DagSerialization.to_dict(dag)["dag"]["deadline"]
    alert = decode_deadline_alert(encoded)  # fails where the scheduler would not know the class of the deadline
    assert alert.interval == timedelta(hours=1)
    assert alert.callback.path == "tally.orchestration.deadline.missed"
    assert alert.callback.kwargs["pipeline"] == name
    assert dag.on_success_callback
    for dag_id in ALONE | ARCHIVES:
        assert not dags[dag_id].deadline


def test_the_deadline_is_a_setting_and_may_be_none(monkeypatch: pytest.MonkeyPatch, airflow_home: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    monkeypatch.setenv("TALLY_DEADLINE", "")
    bag = DagBag(str(REPO / "dags" / "batch.py"))
    assert len(bag.dags) == len(PIPELINES) and not any(dag.deadline for dag in bag.dags.values())
    monkeypatch.setenv("TALLY_DEADLINE", "20 minutes")
    bag = DagBag(str(REPO / "dags" / "batch.py"))
    assert {dag.deadline[0].interval for dag in bag.dags.values()} == {timedelta(minutes=20)}


def test_a_dag_file_is_thin_and_not_skipped_by_airflow() -> None:
    for file in (REPO / "dags").glob("*.py"):
        text = file.read_text().lower()
        assert len(text.splitlines()) <= 40, file
        assert "airflow" in text and "dag" in text, f"{file}: Airflow skips a file without these words"
