"""The task graph of each DAG family as plain frozen data: what runs, in which order, on what, and what a person reads.

Nothing here imports Airflow or Spark, and nothing looks at Kafka, the lake or the control store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from tally.catalog.spec import Pipeline
from tally.orchestration import runbook

BATCH = "batch__{}"
RECONCILE = "reconcile__{}"

# A manual run may have no data interval; these macros of the renderer then give the last whole one.
SINCE, UNTIL = "{{ since(dag_run) }}", "{{ until(dag_run) }}"
# Airflow's native backfill touches just its own windows.
ONLY = "{{ '--only' if dag_run.run_type == 'backfill' else '' }}"
# Which comparison this run made: the Spark job keeps the ticket, and the next task finds the comparison by it.
TICKET = "{{ dag.dag_id }}/{{ run_id }}/{{ ti.map_index }}"
CHUNK = "{{ ti.xcom_pull(task_ids='plan', map_indexes=-1)[ti.map_index]['%s'] }}"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a DAG runs: at the end of each cron interval, at each cron tick, after an asset was updated, or when its

    watcher in the triggerer says so, with a slow cron beside it in case the watcher is dead.
    """

    kind: Literal["interval", "cron", "asset", "watched"]
    of: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One task: a Spark application with its arguments, or a Python step with its keywords; all may be templates."""

    id: str
    kind: Literal["spark", "python"]
    runs: str  # spark: a file of spark/; python: a function of tally.orchestration.steps
    first: str = ""  # spark: a function of steps that is asked first, and says whether that has done it without Spark
    doc: str
    after: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()  # spark; an argument that renders empty is left out
    keywords: Mapping[str, str] = field(default_factory=dict)  # python
    inlets: tuple[str, ...] = ()
    outlets: tuple[str, ...] = ()
    retries: int = 2
    urgent: bool = False
    timeout: timedelta = timedelta(hours=2)
    per_item_of: str = ""  # the task whose list this one is repeated over, together with all others that name it
    tells: bool = False  # whether its answer of no opens an incident itself
    whatever: bool = False  # runs whatever those before it came to, and the run's colour is theirs alone


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One DAG."""

    dag_id: str
    title: str
    doc: str
    schedule: Schedule | None
    tags: tuple[str, ...]
    nodes: tuple[Node, ...]
    owner: str = "tally"
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # JSON schemas, with their default
    timeout: timedelta = timedelta(hours=6)
    at_once: int = 1  # runs that may be under way beside each other
    pipeline: str = ""  # whose runs they are, where they are one's
    deadline: timedelta | None = None  # a run that is not over so long after it was due opens an incident

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        return tuple((before, node.id) for node in self.nodes for before in node.after)


def optional_time(description: str) -> dict[str, Any]:
    return {"type": ["null", "string"], "format": "date-time", "default": None, "description": description}


RANGE = {
    "from": optional_time("Windows that start at or after this; empty: all that is closed and not sealed."),
    "to": optional_time("Windows that start before this."),
}


def streams() -> Graph:
    """Keeps the streams in the state that people want them in."""
    return Graph(
        dag_id="streams",
        title="Keep the streams as they are wanted (pausing this DAG stops no stream)",
        doc=runbook.STREAMS,
        schedule=Schedule(kind="watched", of="*/5 * * * *"),
        tags=("tally", "speed"),
        timeout=timedelta(minutes=10),
        nodes=(
            Node(
                id="act",
                kind="python",
                runs="act",
                doc="Looks again at what the watcher saw, and starts a driver, or replaces a hung one, if need be.",
                retries=0,  # the watcher orders again; a run that waits for its retry would stand in the way
                urgent=True,
                tells=True,
                timeout=timedelta(minutes=5),
            ),
            Node(
                id="tell",
                kind="python",
                runs="tell",
                doc="Looks how far behind the streams are, and sends on incidents that nobody was told of yet.",
                after=("act",),
                retries=0,
                timeout=timedelta(minutes=5),
                whatever=True,
            ),
        ),
    )


def batch(pipeline: Pipeline, every: str, deadline: timedelta | None = None) -> Graph:
    """Ingests what is new and restates the windows of each data interval."""
    topics = [topic.name for topic in pipeline.reads]
    return Graph(
        dag_id=BATCH.format(pipeline.name),
        title=f"Batch layer of {pipeline.name}",
        doc=runbook.BATCH.format(**about(pipeline)),
        schedule=Schedule(kind="interval", of=every),
        tags=("tally", "batch", pipeline.name),
        owner=pipeline.owner,
        pipeline=pipeline.name,
        deadline=deadline,
        nodes=(
            Node(
                id="ingest_and_restate",
                kind="spark",
                runs="batch.py",
                doc="Archives the next offsets exactly once, then restates the interval and what late events touch.",
                arguments=(pipeline.name, "--from", SINCE, "--to", UNTIL, ONLY),
                inlets=tuple(f"topic/{name}" for name in topics),
                outlets=(*(f"archive/{name}" for name in topics), f"batch/{pipeline.name}"),
            ),
        ),
    )


def reconcile(pipeline: Pipeline, deadline: timedelta | None = None) -> Graph:
    """Compares, judges and seals after each batch; with a range when a person gives one."""
    return Graph(
        dag_id=RECONCILE.format(pipeline.name),
        title=f"Reconcile {pipeline.name}",
        doc=runbook.RECONCILE.format(**about(pipeline)),
        schedule=Schedule(kind="asset", of=f"batch/{pipeline.name}"),
        tags=("tally", "reconcile", pipeline.name),
        owner=pipeline.owner,
        pipeline=pipeline.name,
        deadline=deadline,
        params=RANGE,
        nodes=judged(
            pipeline.name,
            arguments=(
                "{{ '--from=' ~ params['from'] if params['from'] else '' }}",
                "{{ '--to=' ~ params['to'] if params['to'] else '' }}",
            ),
        ),
    )


def broken(name: str, every: str) -> tuple[Graph, Graph]:
    """The DAGs of a pipeline whose definition cannot be loaded: still there, and red with the reason when they run."""
    node = Node(
        id="definition",
        kind="python",
        runs="definition",
        doc="Loads the definition, and fails with what is wrong in it.",
        keywords={"pipeline": name},
        retries=0,  # the file says the same the next time
        timeout=timedelta(minutes=5),
    )

    def of(dag_id: str, kind: str, schedule: Schedule, params: Mapping[str, Mapping[str, Any]]) -> Graph:
        return Graph(
            dag_id=dag_id.format(name), title=f"{name} cannot be loaded", doc=runbook.BROKEN.format(name=name),
            schedule=schedule, tags=("tally", kind, name), pipeline=name, params=params, nodes=(node,),
        )  # fmt: skip

    return (
        of(BATCH, "batch", Schedule(kind="interval", of=every), {}),
        of(RECONCILE, "reconcile", Schedule(kind="asset", of=f"batch/{name}"), RANGE),
    )


def maintain() -> Graph:
    """Once a day: small files, old versions, old rows, and another part of the sealed windows audited."""
    return Graph(
        dag_id="maintain",
        title="Keep tables and the control store small, and audit old seals",
        doc=runbook.MAINTAIN,
        schedule=Schedule(kind="cron", of="30 3 * * *"),
        tags=("tally", "maintain"),
        nodes=(
            Node(
                id="lake",
                kind="spark",
                runs="maintain.py",
                doc="OPTIMIZE and VACUUM of archive, quarantine, batch and audit tables.",
            ),
            Node(
                id="audit",
                kind="spark",
                runs="audit.py",
                doc="Holds the next part of each pipeline's sealed windows against their seals and the archive.",
                after=("lake",),
                tells=True,
            ),
            Node(
                id="control_store",
                kind="python",
                runs="prune_control_store",
                doc="Drops old comparisons that hold no slot.",
            ),
        ),
    )


def judged(
    pipeline: str,
    *,
    arguments: tuple[str, ...],
    after: tuple[str, ...] = (),
    per_item_of: str = "",
    assets: bool = True,
) -> tuple[Node, ...]:
    """Compare, judge, seal; a failed verdict is an answer and no accident, so it is not tried again."""
    ticket = {"pipeline": pipeline, "ticket": TICKET}
    minutes = timedelta(minutes=15)
    return (
        Node(
            id="compare", kind="spark", runs="reconcile.py", first="compare", after=after, per_item_of=per_item_of,
            doc="Compares both layers row by row. Where rows differ, Spark explains each; else none is started.",
            arguments=(pipeline, *arguments, "--ticket", TICKET),
            inlets=(f"batch/{pipeline}",) if assets else (),
        ),
        Node(
            id="judge", kind="python", runs="judge", after=("compare",), per_item_of=per_item_of, retries=0,
            doc="Great Expectations over the differences. Red: some have no cause; windows are held.",
            tells=True, timeout=minutes, keywords=ticket,
        ),
        Node(
            id="seal", kind="python", runs="seal", after=("judge",), per_item_of=per_item_of, timeout=minutes,
            doc="Seals the windows with a revision: from here on readers get the batch layer's rows.",
            keywords=ticket,
            outlets=(f"served/{pipeline}",) if assets else (),
        ),
    )  # fmt: skip


def about(pipeline: Pipeline) -> dict[str, str]:
    """What the runbooks say of a pipeline."""
    return {
        "name": pipeline.name,
        "what": pipeline.doc.splitlines()[0] if pipeline.doc else pipeline.name,
        "window": str(pipeline.window),
        "key": ", ".join(pipeline.key),
        "topics": ", ".join(topic.name for topic in pipeline.reads),
        "version": pipeline.version,
    }
