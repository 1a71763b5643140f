"""Airflow's own notifiers as channels for incidents: whatever a provider brings for Slack, e-mail or a pager.

The settings name them by import path: a BaseNotifier instance, a subclass that needs no arguments, or a function that
makes one. `{{ incident.cause }}` and the rest of the incident can be used in its templates.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier, get_current_context

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.supervise.send_notices import Send


def notifiers() -> dict[str, Send]:
    """A channel for each import path of the settings; one that cannot be loaded fails when it is sent something."""
    paths = [path.strip() for path in settings().notifiers.split(",")]
    return {path: partial(notify, path) for path in paths if path}


def notify(path: str, incident: dict[str, Any]) -> None:
    """Have one notifier say an incident, in the context of the task that runs."""
    made = notifier(path)
    try:
        context = {**get_current_context()}
    except RuntimeError:  # no task runs: by hand, and in tests
        context = {}
    made({**context, "incident": incident})


def notifier(path: str) -> BaseNotifier:
    """A notifier of its own for one incident: rendering its templates overwrites them."""
    try:
        module, _, name = path.rpartition(".")
        found: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise TallyError(f"{path} cannot be imported: {error}", field="TALLY_NOTIFIERS", cure="correct it") from None
    made = copy(found) if isinstance(found, BaseNotifier) else found() if callable(found) else found
    if not isinstance(made, BaseNotifier):
        cure = "name a BaseNotifier, a subclass without arguments, or a function that makes one"
        raise TallyError(f"{path} is {type(made).__name__}, no notifier", field="TALLY_NOTIFIERS", cure=cure)
    return made
