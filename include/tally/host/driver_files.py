"""Where an app's stream driver is found on this machine: its locks, its log, the file that names its process."""

from __future__ import annotations

import os
from pathlib import Path

from tally.base.settings import Settings, settings

APP = "tally"


def lock_path(app: str = APP) -> Path:
    """What the driver holds for its life."""
    return settings().home / "run" / f"stream-{app}.lock"


def launch_lock_path(app: str = APP) -> Path:
    """What whoever starts or ends a driver holds while doing so."""
    return settings().home / "run" / f"launch-{app}.lock"


def run_file(app: str = APP) -> Path:
    """{"pid", "created"} of the driver, by which `tally down` ends it first; "log_from" is where its log begins."""
    return settings().home / "run" / f"stream-{app}.json"


def log_path(app: str = APP) -> Path:
    return settings().home / "logs" / f"stream-{app}.log"


def environment(run: Settings) -> dict[str, str]:
    """What a driver is started with: ours without an Airflow task's, and the settings as this process has them."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))}
    return {**ours, "TALLY_HOME": str(run.home), "TALLY_CATALOG": str(run.catalog), "TALLY_JARS": str(run.jars)}
