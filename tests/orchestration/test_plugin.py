"""Airflow finds the plugin once, and has nothing to complain of: its first page shows each complaint in red."""

from __future__ import annotations

import json
import os
import subprocess
import sys

LOOK = """
import json
from importlib.metadata import distributions
from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
places = [str(one._path) for one in distributions() if one.entry_points.select(group="airflow.plugins", name="tally")]
print(json.dumps({"plugins": [one.name for one in plugins], "errors": errors, "places": places}))
"""


def test_the_plugin_is_there_once_and_without_an_error(airflow_database: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=os.environ | airflow_database, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    seen = json.loads(ran.stdout.splitlines()[-1])
    assert seen["errors"] == {}, seen["places"]
    assert seen["plugins"].count("tally") == 1
