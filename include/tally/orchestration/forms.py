"""The task graphs that only a person starts, from a form: plain data like all of them."""

from __future__ import annotations

from datetime import timedelta

from tally.orchestration import runbook
from tally.orchestration.graph import Graph, Node
from tally.words import LONGEST_REASON

ACTIONS = ("pause", "resume", "restart", "stop")


def control(pipelines: list[str]) -> Graph:
    """A form for a person: what should become of a stream."""
    return Graph(
        dag_id="control",
        title="Pause, resume, restart or stop a stream (pausing a DAG does not)",
        doc=runbook.CONTROL,
        schedule=None,
        tags=("tally", "speed", "control"),
        timeout=timedelta(minutes=10),
        params={
            "pipeline": {"type": "string", "enum": pipelines, "title": "Pipeline"},
            "action": {"type": "string", "enum": list(ACTIONS), "title": "Action"},
            "why": {
                "type": "string",
                "maxLength": LONGEST_REASON,
                "default": "",
                "title": "Why",
                "description": "Shown to whoever finds the stream so.",
            },
        },
        nodes=(
            Node(
                id="wish",
                kind="python",
                runs="wish",
                doc="Writes down what is wanted of the stream. Its driver obeys within seconds.",
                keywords={
                    "pipeline": "{{ params['pipeline'] }}",
                    "action": "{{ params['action'] }}",
                    "why": "{{ params['why'] }}",
                    "by": "{{ dag_run.triggering_user_name or 'airflow' }}",
                },
                timeout=timedelta(minutes=5),
            ),
        ),
    )
