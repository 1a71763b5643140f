"""Tally in Airflow's list of plugins, and where it links to."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class TallyPlugin(AirflowPlugin):  # type: ignore[misc]
    """Found by the entry point of the installed package, so that the triggerer has it too."""

    name = "tally"
