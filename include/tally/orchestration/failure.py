"""A task that failed for good is an incident, with its cause and its page, until a run of its DAG is green."""

from __future__ import annotations

from typing import Any

from airflow.sdk.exceptions import AirflowFailException

from tally.base.duration import human
from tally.base.safe_text import printable

FAILED, STREAMS, ARCHIVE = "{} failed", "streams", "archive"
LONGEST_CAUSE = 64  # characters that the control store has for the cause of an incident
A_PERSONS = "a run that a person started: clear it, or start another"
BY_HAND = ("manual", "backfill")  # of Airflow's kinds of runs
LONGEST = 500  # characters of what a task failed of; the page of the task has all of it


def red(context: Any) -> None:
    """Open the incident. Of a run that a person started it is closed at once: it is news, and nobody waits for more."""
    from tally.control import incidents

    task, run = context["ti"], context["run_id"]
    pipeline, cause, by_hand = about(context)
    error = context.get("exception")
    words = "it was ended from outside" if error is None else str(error).strip() or type(error).__name__
    said = printable(words.splitlines()[0])[:LONGEST]
    evidence = f"{task.dag_id}, run {run}, task {task.task_id}: {said} ({task.log_url})"
    cure = f"mend what it names, then clear the task: {task.log_url}"
    incidents.report(pipeline, cause, evidence, cure=cure)
    if by_hand:
        incidents.close(pipeline, cause, done=A_PERSONS)


def of_streams(task_id: str) -> str:
    """What the failure of a task of the streams DAG is called; the task closes it when it is green."""
    return FAILED.format(f"{STREAMS} {task_id}")


def red_unless_told(context: Any) -> None:
    """The same for a task whose answer of no opens an incident of its own."""
    if not isinstance(context.get("exception"), AirflowFailException):
        red(context)


def out_of_time(context: Any) -> None:
    """A run that Airflow ended because it took too long: its tasks are skipped then, and none of them is red."""
    if context.get("reason") != "timed_out":
        return
    from tally.control import incidents

    dag = context["dag"]
    pipeline, cause, by_hand = about(context)
    said = f"{dag.dag_id}, run {context['run_id']}: it was ended, since it was not over in {human(dag.dagrun_timeout)}"
    incidents.report(pipeline, cause, said, cure=f"look at its tasks in {dag.dag_id}, and start it again")
    if by_hand:
        incidents.close(pipeline, cause, done=A_PERSONS)


def recovered(context: Any) -> None:
    """A run is green: what was said of a red one of its DAG is over."""
    from tally.control import incidents

    pipeline, kind = whose(str(context["dag"].dag_id))
    incidents.close(pipeline, failed(kind), done=f"run {context['run_id']} is green")


def whose(dag_id: str) -> tuple[str, str]:
    """Of which pipeline a DAG's runs are, "" where of none or of several, and what they are called."""
    kind, _, name = dag_id.partition("__")
    return ("", f"{ARCHIVE} of {name}") if kind == ARCHIVE else (name, kind)


def failed(kind: str) -> str:
    return FAILED.format(kind)[:LONGEST_CAUSE]


def about(context: Any) -> tuple[str, str, bool]:
    """The pipeline of a run, "" where it is of none, what its failure is called, and whether a person started it.

    One that a person started beside the clock's own has a name of its own: it neither opens nor closes theirs.
    """
    dag = context["dag"]
    pipeline, kind = whose(str(dag.dag_id))
    chosen = pipeline or str((context.get("params") or {}).get("pipeline", "") or "")
    if dag.schedule is None:
        return chosen, failed(kind), True
    if kind == STREAMS and "ti" in context:  # its two tasks fail, and recover, each by itself
        return chosen, of_streams(context["ti"].task_id), False
    by_hand = getattr(context.get("dag_run"), "run_type", "") in BY_HAND
    return chosen, failed(f"{kind} by hand" if by_hand else kind), by_hand
