"""The task graphs as plain data: what follows from a pipeline, and that Airflow is not needed to know it."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import jinja2
import pytest

from tally.base.settings import REPO
from tally.catalog.load import load
from tally.orchestration import forms, graph

CATALOGUE = load(REPO / "spark")
GRAPHS = [
    graph.streams(),
    graph.maintain(),
    forms.backfill(sorted(CATALOGUE.pipelines)),
    forms.control(sorted(CATALOGUE.pipelines)),
    forms.plan(sorted(CATALOGUE.pipelines)),
    *graph.broken("supply", "0 * * * *"),
    *(graph.batch(p, "0 * * * *") for p in CATALOGUE.pipelines.values()),
    *(graph.reconcile(p) for p in CATALOGUE.pipelines.values()),
]


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
def test_every_edge_joins_two_nodes_and_every_node_runs_something(made: graph.Graph) -> None:
    from tally.orchestration import steps

    ids = [node.id for node in made.nodes]
    assert len(ids) == len(set(ids))
    assert {node for edge in made.edges for node in edge} <= set(ids)
    for node in made.nodes:
        assert hasattr(steps, node.runs) if node.kind == "python" else (REPO / "spark" / node.runs).is_file()
        assert not node.per_item_of or node.per_item_of in ids


def test_a_verdict_stands_between_comparison_and_seal() -> None:
    made = graph.reconcile(CATALOGUE.pipelines["vendor_trips"])
    assert made.edges == (("compare", "judge"), ("judge", "seal"))


def rendered(template: str, **context: object) -> str:
    return jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(template).render(**context)


def test_a_backfilled_run_keeps_to_its_windows_and_a_scheduled_one_does_not() -> None:
    (node,) = graph.batch(CATALOGUE.pipelines["vendor_trips"], "0 * * * *").nodes
    for run_type, expected in (("scheduled", ""), ("manual", ""), ("backfill", "--only")):
        run = SimpleNamespace(run_type=run_type)
        words = [rendered(a, dag_run=run, since=lambda _: "T1", until=lambda _: "T2") for a in node.arguments]
        assert words == ["vendor_trips", "--from", "T1", "--to", "T2", expected]


def test_a_range_is_only_passed_when_a_person_gave_one() -> None:
    compare = graph.reconcile(CATALOGUE.pipelines["vendor_trips"]).nodes[0]
    context = {"dag": SimpleNamespace(dag_id="d"), "run_id": "r", "ti": SimpleNamespace(map_index=-1)}
    none = [rendered(a, params={"from": None, "to": None}, **context) for a in compare.arguments]
    assert none == ["vendor_trips", "", "", "--ticket", "d/r/-1"]
    some = [rendered(a, params={"from": "A", "to": "B"}, **context) for a in compare.arguments]
    assert some == ["vendor_trips", "--from=A", "--to=B", "--ticket", "d/r/-1"]


def test_the_form_tells_who_asked_or_that_it_was_airflow() -> None:
    (wish,) = forms.control(["trips"]).nodes
    for user, by in (("ada", "ada"), (None, "airflow")):
        run = SimpleNamespace(triggering_user_name=user, conf={})
        assert rendered(wish.keywords["by"], dag_run=run) == by
