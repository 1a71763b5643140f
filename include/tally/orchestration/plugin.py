"""Tally in Airflow's list of plugins, and where it links to."""

from __future__ import annotations

from typing import ClassVar

from airflow.plugins_manager import AirflowPlugin

from tally.orchestration.deadline import Due


class TallyPlugin(AirflowPlugin):  # type: ignore[misc]
    """Found by the entry point of the installed package, so that the triggerer has it too."""

    name = "tally"
    # The scheduler takes the class of a deadline from here, and from nowhere else.
    deadline_references: ClassVar[list[type]] = [Due]
