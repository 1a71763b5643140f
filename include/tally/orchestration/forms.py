"""The task graphs that only a person starts, from a form: plain data like all of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tally.base.safe_text import LONGEST_REASON
from tally.orchestration import runbook
from tally.orchestration.graph import ITEM, judged
from tally.orchestration.nodes import Graph, Node

ACTIONS = ("pause", "resume", "restart", "stop")
# A form that only asks, or only writes a wish down, waits for no other: more at once than a catalogue has pipelines.
BESIDE = 64
NAME = "{{ params['pipeline'] }}"
CHUNK = ITEM % ("plan", "from"), ITEM % ("plan", "to")


def chosen(pipelines: list[str]) -> dict[str, Any]:
    return {"type": "string", "enum": pipelines, "title": "Pipeline"}


def optional_time(title: str, description: str) -> dict[str, Any]:
    return {
        "type": ["null", "string"], "format": "date-time", "default": None, "title": title, "description": description,
    }  # fmt: skip


def span(pipelines: list[str]) -> dict[str, Mapping[str, Any]]:
    """The fields of a form over a range of one pipeline."""
    return {
        "pipeline": chosen(pipelines),
        "from": {
            "type": "string", "format": "date-time", "title": "From", "description": "Start of the first window, UTC.",
        },
        "to": {
            "type": "string", "format": "date-time", "title": "To",
            "description": "Windows that start before this, UTC.",
        },
    }  # fmt: skip


CHUNK_HOURS = {"type": "integer", "default": 24, "minimum": 1, "maximum": 744, "title": "Hours per chunk"}


def planning(dry_run: str) -> Node:
    """The task that plans a backfill; only what is no dry run has chunks."""
    return Node(
        id="plan",
        kind="python",
        runs="plan",
        doc="Prints what would be done and checks that it can be; a dry run ends here.",
        keywords={
            "pipeline": NAME,
            "since": "{{ params['from'] }}",
            "until": "{{ params['to'] }}",
            "chunk_hours": "{{ params['chunk_hours'] }}",
            "dry_run": dry_run,
        },
        timeout=timedelta(minutes=10),
    )


def plan(pipelines: list[str]) -> Graph:
    """A form for a person: what a backfill would do, and whether it can; answered at once, and nothing is done."""
    return Graph(
        dag_id="plan",
        title="Say what a backfill would do",
        doc=runbook.PLAN,
        schedule=None,
        tags=("tally", "backfill", "plan"),
        timeout=timedelta(minutes=30),
        at_once=BESIDE,
        params={**span(pipelines), "chunk_hours": CHUNK_HOURS},
        nodes=(planning("True"),),
    )


def reconcile(pipelines: list[str]) -> Graph:
    """A form for a person: any range of one or several pipelines compared, judged and sealed; nothing is restated."""
    item, one = "choose", {"type": "string", "enum": pipelines}
    return Graph(
        dag_id="reconcile",
        title="Compare, judge and seal any range, of one or several pipelines",
        doc=runbook.RECONCILE,
        schedule=None,
        tags=("tally", "reconcile"),
        params={
            "pipelines": {
                "type": "array",
                "items": one,
                "minItems": 1,
                "uniqueItems": True,
                "title": "Pipelines",
                "examples": pipelines,
            },
            "from": optional_time("From", "Start of the first window, UTC; empty: all that is closed and not sealed."),
            "to": optional_time("To", "Windows that start before this, UTC."),
        },
        nodes=(
            Node(
                id="choose",
                kind="python",
                runs="choose",
                doc="Looks at the form; each of its pipelines is then compared, judged and sealed by itself.",
                keywords={
                    "pipelines": "{{ params['pipelines'] | tojson }}",
                    "since": "{{ params['from'] or '' }}",
                    "until": "{{ params['to'] or '' }}",
                },
                timeout=timedelta(minutes=5),
            ),
            *judged(
                ITEM % (item, "pipeline"),
                arguments=(
                    "{{ '--from=' ~ params['from'] if params['from'] else '' }}",
                    "{{ '--to=' ~ params['to'] if params['to'] else '' }}",
                ),
                after=("choose",),
                per_item_of=item,
                group="each",
                called_by="pipeline",
                alone=False,  # each is of another pipeline
                assets=False,
            ),
        ),
    )


def control(pipelines: list[str]) -> Graph:
    """A form for a person: what should become of a stream."""
    return Graph(
        dag_id="control",
        title="Pause, resume, restart or stop a stream (pausing a DAG does not)",
        doc=runbook.CONTROL,
        schedule=None,
        tags=("tally", "speed", "control"),
        timeout=timedelta(minutes=30),
        at_once=BESIDE,
        params={
            "pipeline": chosen(pipelines),
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
                doc="Writes down what is wanted of the stream, and is green once its driver has done it.",
                keywords={
                    "pipeline": NAME,
                    "action": "{{ params['action'] }}",
                    "why": "{{ params['why'] }}",
                    "by": "{{ dag_run.triggering_user_name or 'airflow' }}",
                    "asked": "{{ dag_run.run_after | default('') }}",
                },
                timeout=timedelta(minutes=5),
            ),
        ),
    )


def backfill(pipelines: list[str]) -> Graph:
    """A form for a person: a range of one pipeline, restated and reconciled in chunks."""
    item = "plan"
    return Graph(
        dag_id="backfill",
        title="Restate and reconcile a range",
        doc=runbook.BACKFILL,
        schedule=None,
        tags=("tally", "backfill"),
        timeout=timedelta(days=2),
        params={
            **span(pipelines),
            "dry_run": {
                "type": "boolean",
                "default": False,
                "title": "Dry run",
                "description": "Only print the plan, when its turn comes; the DAG `plan` prints it at once.",
            },
            "chunk_hours": CHUNK_HOURS,
        },
        nodes=(
            planning("{{ params['dry_run'] }}"),
            Node(
                id="restate",
                kind="spark",
                runs="batch.py",
                doc="Ingests what is new and restates the chunk's windows.",
                after=("plan",),
                arguments=(NAME, "--from", CHUNK[0], "--to", CHUNK[1], "--only"),
                alone=True,
                per_item_of=item,
                group="chunk",
                called_by="from",
            ),
            *judged(
                NAME,
                arguments=("--from", CHUNK[0], "--to", CHUNK[1]),
                after=("restate",),
                per_item_of=item,
                group="chunk",
                called_by="from",
                assets=False,
            ),
        ),
    )
