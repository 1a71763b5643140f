"""The task graph of each DAG family that runs by itself: what runs, in which order, on what, and what a person reads.

Nothing here imports Airflow or Spark, and nothing looks at Kafka, the lake or the control store.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tally.catalog.spec import Pipeline
from tally.orchestration import runbook
from tally.orchestration.nodes import FEEDING, LIVE, MOST_READERS, URGENT, Graph, Node, Schedule

ARCHIVE = "archive__{}"
BATCH = "batch__{}"

# A manual run may have no data interval; these macros of the renderer then give the last whole one.
SINCE, UNTIL = "{{ since(dag_run) }}", "{{ until(dag_run) }}"
# Airflow's native backfill restates and compares just its own windows.
ONLY = "{{ '--only' if dag_run.run_type == 'backfill' else '' }}"
OWN_RANGE = (
    "{{ '--from=' ~ since(dag_run) if dag_run.run_type == 'backfill' else '' }}",
    "{{ '--to=' ~ until(dag_run) if dag_run.run_type == 'backfill' else '' }}",
)
# Which comparison this run made: the Spark job keeps the ticket, and the next task finds the comparison by it.
TICKET = "{{ dag.dag_id }}/{{ run_id }}/{{ ti.map_index }}"
# A field of the item that one of several tasks works on, from the list of the task that is named first.
ITEM = "{{ ti.xcom_pull(task_ids='%s', map_indexes=-1)[ti.map_index]['%s'] }}"

# How long a batch waits for its topics' archives. Each archive run that fails for good is an incident long before, and
# a batch that was not over in time another one: this long, so that a person may mend it and clear nothing.
PATIENCE = timedelta(hours=2)
A_MOMENT = timedelta(minutes=5)
LONGEST_TAG = 100  # characters, in Airflow; the name of a topic may be longer


def streams() -> Graph:
    """Keeps the streams in the state that people want them in."""
    return Graph(
        dag_id="streams",
        title="Keep the streams as they are wanted (pausing this DAG stops no stream)",
        doc=runbook.STREAMS,
        schedule=Schedule(kind="watched", of="*/5 * * * *"),
        tags=("tally", "speed"),
        timeout=timedelta(minutes=10),
        weight=URGENT,
        nodes=(
            Node(
                id="act",
                kind="python",
                runs="act",
                doc="Looks again at what the watcher saw, and starts a driver, or replaces a hung one, if need be.",
                retries=0,  # the watcher orders again; a run that waits for its retry would stand in the way
                tells=True,
                timeout=A_MOMENT,
            ),
            Node(
                id="tell",
                kind="python",
                runs="tell",
                doc="Looks how far behind the streams are, and sends on incidents that nobody was told of yet.",
                after=("act",),
                retries=0,
                timeout=A_MOMENT,
                whatever=True,
            ),
        ),
    )


def archive(topic: str, every: str, readers: Sequence[str]) -> Graph:
    """Takes what is new of a topic into the archive, once for all pipelines that read it."""
    return Graph(
        dag_id=ARCHIVE.format(topic),
        title=f"Archive of {topic}",
        doc=runbook.ARCHIVE.format(topic=topic, readers=", ".join(sorted(readers)) or "none that can be loaded now"),
        schedule=Schedule(kind="archive", of=every),
        tags=("tally", "archive", tag("topic", topic)),
        weight=FEEDING + min(max(len(readers), 1), MOST_READERS),
        nodes=(
            Node(
                id="ingest",
                kind="spark",
                runs="archive.py",
                first="archive",
                doc="Archives the next offsets exactly once, in bounded commits. Nothing new: no Spark is started.",
                arguments=(topic,),
                inlets=(f"topic/{topic}",),
                outlets=(f"archive/{topic}",),
            ),
        ),
    )


def batch(pipeline: Pipeline, every: str, deadline: timedelta | None = None) -> Graph:
    """Brings each data interval to its end: archived, restated, compared, judged and sealed."""
    topics, name = tuple(topic.name for topic in pipeline.reads), pipeline.name
    archives = tuple(f"archive/{topic}" for topic in topics)
    wait = Node(
        id="wait",
        kind="wait",
        doc="Waits, without a worker, until the archive of each topic holds all that Kafka held at the interval's end.",
        archives=topics,
        until=UNTIL,
        timeout=PATIENCE + A_MOMENT,
    )
    restate = Node(
        id="restate",
        kind="spark",
        runs="batch.py",
        doc="Restates the windows of the interval from the archive, and older ones that late events touch.",
        after=("wait",),
        arguments=(name, "--from", SINCE, "--to", UNTIL, ONLY, "--archived"),
        alone=True,
        inlets=archives,
        outlets=(f"batch/{name}",),
    )
    return Graph(
        dag_id=BATCH.format(name),
        title=f"Batch layer of {name}, to its seals",
        doc=runbook.BATCH.format(**about(pipeline)),
        schedule=Schedule(kind="interval", of=every),
        tags=("tally", "batch", name, *found_by(pipeline)),
        owner=pipeline.owner,
        pipeline=name,
        deadline=deadline,
        weight=LIVE,
        nodes=(wait, restate, *judged(name, arguments=OWN_RANGE, after=("restate",))),
    )


def broken(name: str, every: str) -> Graph:
    """The DAG of a pipeline whose definition cannot be loaded: still there, and red with the reason when it runs."""
    node = Node(
        id="definition",
        kind="python",
        runs="definition",
        doc="Loads the definition, and fails with what is wrong in it.",
        keywords={"pipeline": name},
        retries=0,  # the file says the same the next time
        timeout=A_MOMENT,
    )
    return Graph(
        dag_id=BATCH.format(name), title=f"{name} cannot be loaded", doc=runbook.BROKEN.format(name=name),
        schedule=Schedule(kind="interval", of=every), tags=("tally", "batch", name), pipeline=name, nodes=(node,),
    )  # fmt: skip


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
    group: str = "",
    called_by: str = "",
    alone: bool = True,
    assets: bool = True,
) -> tuple[Node, ...]:
    """Compare, judge, seal; a failed verdict is an answer and no accident, so it is not tried again."""
    ticket = {"pipeline": pipeline, "ticket": TICKET}
    minutes = timedelta(minutes=15)
    each: Any = {"per_item_of": per_item_of, "group": group, "called_by": called_by}
    return (
        Node(
            id="compare", kind="spark", runs="reconcile.py", first="compare", after=after, alone=alone, **each,
            doc="Compares both layers row by row. Where rows differ, Spark explains each; else none is started.",
            arguments=(pipeline, *arguments, "--ticket", TICKET),
            inlets=(f"batch/{pipeline}",) if assets else (),
        ),
        Node(
            id="judge", kind="python", runs="judge", after=("compare",), retries=0, **each,
            doc="Great Expectations over the differences. Red: some have no cause; windows are held.",
            tells=True, timeout=minutes, keywords=ticket,
        ),
        Node(
            id="seal", kind="python", runs="seal", after=("judge",), timeout=minutes, **each,
            doc="Seals the windows with a revision: from here on readers get the batch layer's rows.",
            keywords=ticket,
            outlets=(f"served/{pipeline}",) if assets else (),
        ),
    )  # fmt: skip


def found_by(pipeline: Pipeline) -> tuple[str, ...]:
    """The tags of a pipeline's topics, and of its team and its tier where they are declared."""
    topics = [tag("topic", topic.name) for topic in pipeline.reads]
    declared = {"team": pipeline.team, "tier": pipeline.tier}
    return (*topics, *(tag(kind, word) for kind, word in declared.items() if word))


def tag(kind: str, word: str) -> str:
    return f"{kind}:{word}"[:LONGEST_TAG]


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
