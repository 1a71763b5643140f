"""The task graphs that only a person starts, from a form: plain data like all of them."""

from __future__ import annotations

from datetime import timedelta

from tally.base.safe_text import LONGEST_REASON
from tally.orchestration import runbook
from tally.orchestration.graph import CHUNK, Graph, Node, judged

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


def backfill(pipelines: list[str]) -> Graph:
    """A form for a person: a range of one pipeline, restated and reconciled in chunks."""
    item = "plan"
    name = "{{ params['pipeline'] }}"
    return Graph(
        dag_id="backfill",
        title="Restate and reconcile a range",
        doc=runbook.BACKFILL,
        schedule=None,
        tags=("tally", "backfill"),
        timeout=timedelta(days=2),
        params={
            "pipeline": {"type": "string", "enum": pipelines, "title": "Pipeline"},
            "from": {
                "type": "string",
                "format": "date-time",
                "title": "From",
                "description": "Start of the first window, UTC.",
            },
            "to": {
                "type": "string",
                "format": "date-time",
                "title": "To",
                "description": "Windows that start before this, UTC.",
            },
            "dry_run": {"type": "boolean", "default": False, "title": "Dry run", "description": "Only print the plan."},
            "chunk_hours": {"type": "integer", "default": 24, "minimum": 1, "maximum": 744, "title": "Hours per chunk"},
        },
        nodes=(
            Node(
                id="plan",
                kind="python",
                runs="plan",
                doc="Prints what will be done and checks that it can be; a dry run ends here.",
                keywords={
                    "pipeline": name,
                    "since": "{{ params['from'] }}",
                    "until": "{{ params['to'] }}",
                    "chunk_hours": "{{ params['chunk_hours'] }}",
                    "dry_run": "{{ params['dry_run'] }}",
                },
                timeout=timedelta(minutes=10),
            ),
            Node(
                id="restate",
                kind="spark",
                runs="batch.py",
                doc="Ingests what is new and restates the chunk's windows.",
                after=("plan",),
                arguments=(name, "--from", CHUNK % "from", "--to", CHUNK % "to", "--only"),
                per_item_of=item,
            ),
            *judged(
                name,
                arguments=("--from", CHUNK % "from", "--to", CHUNK % "to"),
                after=("restate",),
                per_item_of=item,
                assets=False,
            ),
        ),
    )
