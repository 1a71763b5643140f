"""Runs a Python step inside a task: its refusals become Airflow's, in one line and without a traceback."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from tally.errors import AnswerIsNo, TallyError

log = logging.getLogger("airflow.task")


def call(function: str, keywords: dict[str, str]) -> Any:
    """What the step returns. An answer of no is final; any other refusal may pass by itself, and may be retried."""
    steps = import_module("tally.orchestration.steps")
    try:
        return getattr(steps, function)(**keywords)
    except steps.NothingToDo as reason:
        raise AirflowSkipException(str(reason)) from None
    except TallyError as error:
        log.error("%s", error)
        final = isinstance(error, AnswerIsNo)
        raise (AirflowFailException if final else AirflowException)(str(error).splitlines()[0]) from None
