"""The one file that turns a graph into an Airflow DAG; everything it decides stands in the graph or here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    BaseOperator,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    Param,
    task_group,
)
from airflow.timetables.interval import CronDataIntervalTimetable as Intervals

from tally.base.settings import settings
from tally.orchestration.application import SparkApplication
from tally.orchestration.call import call, of_form
from tally.orchestration.deadline import alert, in_time
from tally.orchestration.failure import out_of_time, recovered, red, red_unless_told
from tally.orchestration.graph import PATIENCE
from tally.orchestration.nodes import ANY_TIME, URGENT, Graph, Node, Schedule
from tally.orchestration.trigger import StreamsNeedAction
from tally.orchestration.wait import ArchiveWait

# Before any data: with catchup off it makes no run of long ago, and a native backfill may go back as far as it likes. A
# DAG with one makes up for the last tick at once: an archive should, and a maintenance in the first minute should not.
START = datetime(2000, 1, 1, tzinfo=UTC)

# What the watcher updates; its name is what the UI shows beside the streams DAG.
NEED = "streams_need_action"

# Infrastructure: a broker that restarts or a full disk is over in minutes, and a third failure is for a person.
RETRY = {
    "retry_delay": timedelta(seconds=30),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
}


def render(graph: Graph) -> DAG:
    """The DAG of a graph."""
    dag = DAG(
        graph.dag_id,
        dag_display_name=graph.dag_id,
        description=graph.title,
        doc_md=graph.doc,
        schedule=timetable(graph.schedule),
        start_date=None if graph.schedule and graph.schedule.kind == "cron" else START,
        catchup=False,
        max_active_runs=graph.at_once,
        dagrun_timeout=graph.timeout,
        tags=list(graph.tags),
        params={name: param(dict(schema)) for name, schema in graph.params.items()},
        user_defined_macros=macros(graph.schedule),
        deadline=alert(graph.deadline, graph.pipeline) if graph.deadline else None,
        on_success_callback=when_green(graph),
        on_failure_callback=out_of_time,
        default_args={
            "owner": graph.owner,
            "priority_weight": graph.weight,
            "weight_rule": "upstream",
            **RETRY,
        },
    )
    with dag:
        first = of_form(graph.params)  # to ignore a field, where a range may be meant by it, is to do something else
        alone = [node for node in graph.nodes if not node.per_item_of]
        taking = pools(graph)
        tasks = {node.id: operator(node, taking, None if node.after else first) for node in alone}
        for source in sorted({node.per_item_of for node in graph.nodes} - {""}):
            tasks |= mapped([node for node in graph.nodes if node.per_item_of == source], tasks[source], taking)
        for before, after in graph.edges:
            if after in tasks and before in tasks:
                tasks[before].set_downstream(tasks[after])
        for node in graph.nodes:
            if node.whatever:  # a trigger rule alone would make it the last task, and a failed run green
                tasks[node.id].as_teardown()
    return dag


def when_green(graph: Graph) -> list[Callable[[Any], None]] | None:
    """What is over once a run is green; the streams DAG, whose runs come every five minutes, sees to that itself."""
    if graph.schedule is None or graph.schedule.kind == "watched":
        return None
    return [in_time, recovered] if graph.deadline else [recovered]


def timetable(schedule: Schedule | None) -> Any:
    """Airflow's own word for when a DAG runs."""
    if schedule is None:
        return None
    if schedule.kind == "interval":
        return CronDataIntervalTimetable(schedule.of, timezone="UTC")
    if schedule.kind == "watched":
        watcher = AssetWatcher(name="streams", trigger=StreamsNeedAction())
        clock = CronTriggerTimetable(schedule.of, timezone="UTC")
        return AssetOrTimeSchedule(timetable=clock, assets=[Asset(NEED, watchers=[watcher])])
    return schedule.of


def param(schema: dict[str, Any]) -> Param:
    """A field of the form; without a default it must be filled in."""
    return Param(schema.pop("default"), **schema) if "default" in schema else Param(**schema)


@dataclass(frozen=True)
class Pools:
    """Whose slots a DAG's tasks take: those that start Spark, and the others."""

    spark: str
    others: str = "default_pool"


def pools(graph: Graph) -> Pools:
    """A batch of now is not behind what a person wants of long ago, and a stream that is down is behind neither."""
    run = settings()
    if graph.weight == URGENT:
        return Pools(run.supervision_pool, run.supervision_pool)
    return Pools(run.backfill_pool if graph.weight == ANY_TIME else run.spark_pool)


def operator(node: Node, taking: Pools, before: Callable[[Any], None] | None = None) -> BaseOperator:
    """A node's task, and what is done before it."""
    common: dict[str, Any] = {
        "task_id": node.id,
        "doc_md": node.doc,
        "retries": node.retries,
        "execution_timeout": node.timeout,
        "max_active_tis_per_dag": 1 if node.alone else None,
        "pre_execute": before,
        "on_failure_callback": red_unless_told if node.tells else red,
        "inlets": [Asset(name) for name in node.inlets],
        "outlets": [Asset(name) for name in node.outlets],
    }
    if node.per_item_of:
        common["map_index_template"] = (
            f"{{{{ ti.xcom_pull(task_ids='{node.per_item_of}', map_indexes=-1)[ti.map_index]['{node.called_by}'] }}}}"
        )
    if node.kind == "spark":
        return SparkApplication(
            script=node.runs, arguments=node.arguments, first=node.first, pool=taking.spark, **common
        )
    if node.kind == "wait":
        return ArchiveWait(topics=node.archives, until=node.until, patience=PATIENCE, **common)
    return PythonOperator(
        python_callable=call,
        op_args=[node.runs],
        op_kwargs={"keywords": dict(node.keywords)},
        show_return_value_in_logs=False,
        pool=taking.others,
        **common,
    )


def mapped(nodes: list[Node], source: BaseOperator, taking: Pools) -> dict[str, BaseOperator]:
    """One group of tasks for each item of the source's list; the tasks find their item by their map index."""

    @task_group(group_id=nodes[0].group)  # type: ignore[untyped-decorator]
    def chunk(item: Any) -> None:
        inside = {node.id: operator(node, taking) for node in nodes}
        for node in nodes:
            for before in node.after:
                if before in inside:
                    inside[before].set_downstream(inside[node.id])

    chunk.expand(item=source.output)
    return {}


def macros(schedule: Schedule | None) -> dict[str, Callable[[Any], str]]:
    """`since` and `until` of a run: its data interval, or for a run without one the last whole interval before it."""
    every = schedule.of if schedule and schedule.kind == "interval" else settings().batch_every

    def interval(dag_run: Any) -> tuple[datetime, datetime]:
        start, end = dag_run.data_interval_start, dag_run.data_interval_end
        if start is not None and end is not None and start < end:
            return start, end
        last = Intervals(every, timezone="UTC").infer_manual_data_interval(
            run_after=pendulum.instance(dag_run.run_after)
        )
        return last.start, last.end

    return {
        "since": lambda dag_run: instant(interval(dag_run)[0]),
        "until": lambda dag_run: instant(interval(dag_run)[1]),
    }


def instant(moment: datetime) -> str:
    return pendulum.instance(moment).in_timezone("UTC").strftime("%Y-%m-%dT%H:%M:%SZ")
