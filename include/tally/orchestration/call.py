"""Runs a Python step inside a task: its refusals become Airflow's, in one line and without a traceback."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tally.base.errors import AnswerIsNo, TallyError

log = logging.getLogger("airflow.task")


def call(function: str, keywords: dict[str, str]) -> Any:
    """What the step returns. An answer of no is final; any other refusal may pass by itself, and may be retried."""
    steps = import_module("tally.orchestration.steps")
    with refusals():
        try:
            return getattr(steps, function)(**keywords)
        except steps.NothingToDo as reason:
            raise AirflowSkipException(str(reason)) from None


def of_form(fields: Collection[str]) -> Callable[[Any], None]:
    """A hook that runs before a DAG's first tasks: a run whose configuration has other fields is refused for good."""

    def check(context: Any) -> None:
        with refusals():
            import_module("tally.orchestration.steps").check_form(context["dag_run"].conf or {}, fields)

    return check


@contextmanager
def refusals() -> Iterator[None]:
    """Tally's refusals as Airflow's."""
    try:
        yield
    except TallyError as error:
        log.error("%s", error)
        final = isinstance(error, AnswerIsNo)
        raise (AirflowFailException if final else AirflowException)(str(error).splitlines()[0]) from None
