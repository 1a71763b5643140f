"""When a run of Airflow's must be over, and what is said when it is not: an incident, told like any other.

The moment is worked out by the scheduler, what is said by the triggerer; so both are in the installed package. DAGs are
parsed with it, so the control store is imported only when there is something to say.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from airflow.sdk import AsyncCallback, BaseDeadlineReference, DeadlineAlert  # type: ignore[attr-defined]

from tally.base.duration import human

LATE = "run is late"
# A person who starts a run over old data waits for it; nobody was promised when it is over.
PROMISED = "scheduled"


class Due(BaseDeadlineReference):  # type: ignore[misc]
    """When a run that the clock started was due: at the end of its interval.

    The first run of a DAG has none: it may be of an interval that ended long before anybody was there to run it.
    """

    required_kwargs = frozenset({"dag_id", "run_id"})

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str) -> datetime | None:
        from airflow.models import DagRun

        promised = (DagRun.dag_id == dag_id) & (DagRun.run_type == PROMISED)
        if session.scalar(sa.select(sa.func.count()).where(promised, DagRun.run_id != run_id)) == 0:
            return None
        due: datetime | None = session.scalar(sa.select(DagRun.run_after).where(promised, DagRun.run_id == run_id))
        return due


def alert(within: timedelta, pipeline: str) -> DeadlineAlert:
    """The deadline of a DAG: so long after a run was due."""
    said = {"pipeline": pipeline, "within": human(within)}
    return DeadlineAlert(reference=Due(), interval=within, callback=AsyncCallback(missed, kwargs=said))


async def missed(pipeline: str, within: str, context: dict[str, Any]) -> str:
    """Airflow says that a run is not over in time."""
    run = context["dag_run"]
    return await asyncio.to_thread(late, pipeline, within, run["dag_id"], run["dag_run_id"], run["run_after"])


def late(pipeline: str, within: str, dag_id: str, run_id: str, due: str) -> str:
    """Open an incident for a run that is late; what is returned is Airflow's record of the callback."""
    from tally.control import incidents

    said = f"{dag_id}, run {run_id}, was due at {due} and is not over {within} later: sealed numbers are that old"
    cure = f"look at the run's red or running task in {dag_id}; clear it once what it names is mended"
    return f"incident {incidents.report(pipeline, cause(dag_id), said, cure=cure)}"


def in_time(context: Any) -> None:
    """A run is over and green: what was said of a late one of its DAG is over too."""
    from tally.control import incidents

    dag_id = str(context["dag"].dag_id)
    incidents.close(dag_id.partition("__")[2], cause(dag_id), done=f"run {context['run_id']} is over")


def cause(dag_id: str) -> str:
    """What the lateness of a DAG's run is called."""
    return f"{dag_id.partition('__')[0]} {LATE}"
