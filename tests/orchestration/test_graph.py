"""The task graphs as plain data: what follows from a pipeline, and that Airflow is not needed to know it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest

from tally.base.settings import REPO
from tally.catalog.load import load
from tally.orchestration import forms, graph
from tally.orchestration.nodes import Graph

CATALOGUE = load(REPO / "spark")
GRAPHS = [
    graph.streams(),
    graph.maintain(),
    forms.backfill(sorted(CATALOGUE.pipelines)),
    forms.control(sorted(CATALOGUE.pipelines)),
    forms.plan(sorted(CATALOGUE.pipelines)),
    forms.reconcile(sorted(CATALOGUE.pipelines)),
    graph.broken("supply", "0 * * * *"),
    *(graph.archive(name, "*/5 * * * *", ["trips"]) for name in CATALOGUE.topics),
    *(graph.batch(p, "0 * * * *") for p in CATALOGUE.pipelines.values()),
]
RUNS = (("scheduled", ""), ("manual", ""), ("backfill", "--only"))
BATCH = graph.batch(CATALOGUE.pipelines["vendor_trips"], "0 * * * *")


def test_neither_airflow_nor_spark_is_imported() -> None:
    script = (
        "import sys, tally.orchestration.graph, tally.orchestration.forms;"
        "print([n for n in sys.modules if n.split('.')[0] in ('airflow', 'pyspark')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize("made", GRAPHS, ids=lambda made: made.dag_id)
def test_every_edge_joins_two_nodes_and_every_node_runs_something(made: Graph) -> None:
    from tally.orchestration import steps

    ids = [node.id for node in made.nodes]
    assert len(ids) == len(set(ids))
    assert {node for edge in made.edges for node in edge} <= set(ids)
    for node in made.nodes:
        if node.kind == "python":
            assert hasattr(steps, node.runs)
        elif node.kind == "spark":
            assert (REPO / "spark" / node.runs).is_file()
        else:
            assert node.archives and node.until
        assert not node.per_item_of or (node.per_item_of in ids and node.group and node.called_by)


def test_a_batch_goes_from_its_archives_to_its_seals_in_one_run() -> None:
    assert BATCH.edges == (("wait", "restate"), ("restate", "compare"), ("compare", "judge"), ("judge", "seal"))


def test_a_pipeline_of_two_topics_waits_for_both() -> None:
    wait = graph.batch(CATALOGUE.pipelines["paid_rides"], "0 * * * *").nodes[0]
    assert set(wait.archives) == {"rides", "payments"}
    assert rendered(wait.until, dag_run=None, until=lambda _: "T2") == "T2"


CONTEXT: dict[str, Any] = {
    "dag": SimpleNamespace(dag_id="d"), "run_id": "r", "ti": SimpleNamespace(map_index=-1),
}  # fmt: skip


def rendered(template: str, **context: object) -> str:
    return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(template).render(**context)


def test_a_backfilled_run_keeps_to_its_windows_and_a_scheduled_one_does_not() -> None:
    _, restate, compare, *_ = BATCH.nodes
    for run_type, only in RUNS:
        run = SimpleNamespace(run_type=run_type)
        given = {"dag_run": run, "since": lambda _: "T1", "until": lambda _: "T2", **CONTEXT}
        words = [rendered(a, **given) for a in restate.arguments]
        assert words == ["vendor_trips", "--from", "T1", "--to", "T2", only, "--archived"]
        own = ["--from=T1", "--to=T2"] if only else ["", ""]  # the clock's own takes all that is due
        assert [rendered(a, **given) for a in compare.arguments] == ["vendor_trips", *own, "--ticket", "d/r/-1"]


def test_a_range_is_only_passed_when_a_person_gave_one() -> None:
    made = forms.reconcile(sorted(CATALOGUE.pipelines))
    choose, compare, judge, _ = made.nodes
    asked = {"pipelines": ["paid_rides", "vendor_trips"], "from": None, "to": None}
    assert rendered(choose.keywords["pipelines"], params=asked) == '["paid_rides", "vendor_trips"]'
    assert rendered(choose.keywords["since"], params=asked) == ""
    items = [{"pipeline": name} for name in asked["pipelines"]]
    pulled = {"choose": items}
    ti = SimpleNamespace(map_index=1, xcom_pull=lambda task_ids, map_indexes: pulled[task_ids])
    context = {**CONTEXT, "ti": ti}
    none = [rendered(a, params=asked, **context) for a in compare.arguments]
    assert none == ["vendor_trips", "", "", "--ticket", "d/r/1"]
    some = [rendered(a, params={**asked, "from": "A", "to": "B"}, **context) for a in compare.arguments]
    assert some == ["vendor_trips", "--from=A", "--to=B", "--ticket", "d/r/1"]
    assert rendered(judge.keywords["pipeline"], **context) == "vendor_trips"


def test_the_form_tells_who_asked_or_that_it_was_airflow() -> None:
    (wish,) = forms.control(["trips"]).nodes
    for user, by in (("ada", "ada"), (None, "airflow")):
        run = SimpleNamespace(triggering_user_name=user, conf={})
        assert rendered(wish.keywords["by"], dag_run=run) == by
