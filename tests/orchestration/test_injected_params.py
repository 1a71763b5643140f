"""What somebody may put into a DAG's form is refused by the form or by its step, or stays the text that it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults import corpus
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import REPO
from tally.orchestration import steps

GOOD = {
    "pipeline": "vendor_trips", "action": "pause", "why": "", "from": "2026-11-01T10:00:00Z",
    "to": "2026-11-01T12:00:00Z", "dry_run": False, "chunk_hours": 24, "pipelines": ["vendor_trips"],
}  # fmt: skip
FREE = {"why"}
# Values of these kinds lie in JSON beside the texts.
OTHERS: dict[str, Any] = {
    "a list": ["vendor_trips"], "an object": {"a": 1}, "a number": 7, "a fraction": 1.5, "no number": float("nan"),
    "huge number": 10**400, "a negative number": -1, "nought": 0, "true": True, "null": None,
}  # fmt: skip
# Times as the form has them, that only the step can tell to be outside all time.
TIMES = {"before the first", "after the last"}
# What a field may well mean by them.
MEANT = {"chunk_hours": {"a number"}, "dry_run": {"true"}, "from": {"null"}, "to": {"null"}, "pipelines": {"a list"}}


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
        from airflow.dag_processing.dagbag import DagBag

        return dict(DagBag(str(REPO / "dags")).dags)


@pytest.fixture(autouse=True)
def nothing_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked of the wishes; Kafka holds nothing, and no session begins."""
    asked: list[Any] = []

    def no_session(*_: Any, **__: Any) -> Any:
        raise AssertionError("a session was asked for")

    def of(action: str) -> object:
        return lambda pipeline, *, by, why: asked.append((action, pipeline, why))

    stand_in = SimpleNamespace(**{action: of(action) for action in ("pause", "resume", "restart", "stop")})
    monkeypatch.setitem(sys.modules, "tally.supervise.desired_state", stand_in)
    monkeypatch.setattr("tally.backfill.coverage.retained_ranges", lambda topic: {})
    for module in ("tally.jobs.batch", "tally.reconcile.compare"):
        monkeypatch.setattr(f"{module}.session", no_session)
    return asked


def values(canary: Path) -> dict[str, Any]:
    return {**corpus.values(canary), **OTHERS}


def takes(dag: Any, field: str, value: Any) -> bool:
    """Whether Airflow's form lets a value through, as its API asks it."""
    from airflow.serialization.serialized_objects import DagSerialization

    back = dag.__dict__.setdefault("_as_the_api_has_it", DagSerialization.from_dict(DagSerialization.to_dict(dag)))
    from airflow.exceptions import ParamValidationError

    params = back.params.deep_merge({**good(dag), field: value})
    try:
        params.validate()
    except ParamValidationError as error:
        assert field in str(error)
        return False
    return True


def good(dag: Any) -> dict[str, Any]:
    return {name: GOOD[name] for name in dag.params}


def rendered(dag: Any, task_id: str, given: dict[str, Any]) -> Any:
    """A task's own fields after Airflow has rendered its templates for a run with this configuration."""
    task = dag.get_task(task_id)
    run = SimpleNamespace(conf=given, triggering_user_name="ada", run_type="manual")
    context = {
        "params": given, "dag_run": run, "dag": dag, "run_id": "{{ 7*7 }}",
        "ti": SimpleNamespace(map_index=-1, xcom_pull=lambda **_: {-1: {"from": "a", "to": "b", "pipeline": "c"}}),
    }  # fmt: skip
    field = "op_kwargs" if hasattr(task, "op_kwargs") else "application_args"
    return task.render_template(getattr(task, field), context, dag.get_template_env())


def forms(dags: dict[str, Any]) -> list[tuple[Any, str]]:
    return [(dag, field) for dag in dags.values() for field in dag.params]


def executed(dag: Any, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what the first task would do with what it is given; a Spark application in this process, up to its session."""
    (first,) = dag.roots
    made = rendered(dag, first.task_id, given)
    if first.task_type == "PythonOperator":
        getattr(steps, first.op_args[0])(**made["keywords"])
        return
    arguments = [argument for argument in made if argument]
    monkeypatch.setattr(sys, "argv", [first.application, *arguments])
    spec = importlib.util.spec_from_file_location("application", first.application)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if code := module.main():
        raise TallyError(f"ended with {code}", field="from")


def test_every_field_of_every_form_refuses_what_it_cannot_mean(
    dags: dict[str, Any], tmp_path: Path, nothing_runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    canary, through = tmp_path / "canary", []
    for dag, field in forms(dags):
        if field in FREE:
            continue
        for name, value in values(canary).items():
            if takes(dag, field, value):
                through.append((dag.dag_id, field, name))
                if name in MEANT.get(field, set()):
                    continue
                with pytest.raises((TallyError, SystemExit)) as refused:
                    executed(dag, {**good(dag), field: value}, monkeypatch)
                assert not isinstance(refused.value, TallyError) or refused.value.field, (dag.dag_id, field, name)
    late = {(field, name) for field in ("from", "to") for name in TIMES}
    meant = {(field, name) for field, names in MEANT.items() for name in names}
    assert {(field, name) for _, field, name in through} == late | meant
    assert nothing_runs == [] and not canary.exists()


def test_a_step_refuses_by_name_what_a_form_would_not_let_through(
    dags: dict[str, Any], tmp_path: Path, nothing_runs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    for dag_id in ("control", "plan", "reconcile", "backfill"):
        for field in dags[dag_id].params:
            for name, value in corpus.values(canary).items() if field not in FREE else ():
                with pytest.raises(AnswerIsNo) as refused:
                    executed(dags[dag_id], {**good(dags[dag_id]), field: value}, monkeypatch)
                assert refused.value.field in (field, "from") and refused.value.cure, (dag_id, field, name)
                assert len(str(refused.value)) < 1000
    assert nothing_runs == [] and not canary.exists()


def test_a_reason_is_never_rendered_and_is_one_line_of_the_log(
    dags: dict[str, Any], tmp_path: Path, nothing_runs: list[Any], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    canary, kept = tmp_path / "canary", []
    for name, value in corpus.values(canary).items():
        if name in ("nul", "surrogate") or name.startswith("long"):
            with pytest.raises(AnswerIsNo) as refused:
                executed(dags["control"], {**GOOD, "why": value}, monkeypatch)
            assert refused.value.field == "why"
            assert not name.startswith("long") or not takes(dags["control"], "why", value)
            continue
        executed(dags["control"], {**GOOD, "why": value}, monkeypatch)
        kept.append(("pause", "vendor_trips", value))
        (said,) = capsys.readouterr().out.splitlines()
        assert said.isprintable()
    assert nothing_runs == kept
    assert not canary.exists()


def test_nothing_of_a_form_becomes_an_option_of_spark_submit(dags: dict[str, Any], tmp_path: Path) -> None:
    for dag, field in forms(dags):
        for task in dag.tasks:
            if task.task_type != "SparkApplication":
                continue
            for value in corpus.values(tmp_path / "canary").values():
                made = [a for a in rendered(dag, task.task_id, {**good(dag), field: value}) if a]
                hook = task._get_hook()
                hook._connection = {"master": "local", "spark_binary": "spark-submit", "deploy_mode": None,
                                    "queue": None, "namespace": None, "principal": None, "keytab": None}  # fmt: skip
                hook._application_args = made
                command = hook._build_spark_submit_command(task.application)
                assert command[command.index(task.application) + 1 :] == made
                assert field == "pipeline" or value not in made, "a value stands behind its name: --from=value"


@pytest.mark.parametrize("conf", [{"pipelinez": "x"}, {"": 1}, {"from ": "2026-11-01T10:00:00Z"}, {"\x1b[2J": 1}])
def test_a_field_that_a_dag_has_no_form_for_is_refused_before_anything_runs(
    dags: dict[str, Any], conf: dict[str, Any]
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    for dag in dags.values():
        for first in dag.roots:
            hook = first._pre_execute_hook
            hook({"dag_run": SimpleNamespace(conf=None)})
            hook({"dag_run": SimpleNamespace(conf=good(dag))})
            with pytest.raises(AirflowFailException, match="no such field") as refused:
                hook({"dag_run": SimpleNamespace(conf={**good(dag), **conf})})
            assert str(refused.value).isprintable()
