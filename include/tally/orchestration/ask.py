"""What Airflow knows of a pipeline's DAGs that keeps its numbers from being sealed, by the SDK's own questions.

Only a running task can ask, and only of the DAGs that it names; Airflow's database is not touched.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import get_current_context

from tally.catalog.load import definitions
from tally.orchestration.graph import ARCHIVE, BATCH

NO_SUCH_DAG = 404


def stands_in_the_way(pipeline: str) -> str:
    """In words, with the page of each DAG; "" where no task runs, or nothing of it is known."""
    try:
        task = get_current_context()["ti"]
    except RuntimeError:  # by hand, and in tests
        return ""
    known = definitions().pipelines.get(pipeline)
    dags = [*(ARCHIVE.format(topic.name) for topic in (known.reads if known else ())), BATCH.format(pipeline)]
    found = [said for dag in dags if (said := of_dag(task, dag))]
    return "; ".join(found)


def status(error: Exception) -> int:
    """The HTTP status of an answer of Airflow's API, which a task gets from its supervisor, or had itself; else 0."""
    detail = getattr(getattr(error, "error", None), "detail", None) or {}
    answer = getattr(error, "response", None)
    return int(detail.get("status_code", 0) or getattr(answer, "status_code", 0))


def of_dag(task: Any, dag_id: str) -> str:
    """Whether a DAG is there, is not paused, and has runs that wait or take long."""
    base, _, _ = str(task.log_url).partition("/dags/")
    page = f"{base}/dags/{dag_id}"
    try:
        dag = task.get_dag(dag_id)
        if dag.is_paused:
            return f"{dag_id} is paused ({page})"
        waiting = [(task.get_dr_count(dag_id, states=[state]), state) for state in ("queued", "running")]
    except Exception as error:  # what tells of the cause is not to stand in the way of what is told
        if status(error) == NO_SUCH_DAG:
            return f"Airflow has no {dag_id}: is there an import error of its file?"
        return f"Airflow does not say how {dag_id} is: {str(error).splitlines()[0] if str(error) else 'no answer'}"
    runs = ", ".join(f"{count} {state}" for count, state in waiting if count)
    return f"{dag_id} has runs that are not over: {runs} ({page})" if runs else ""
