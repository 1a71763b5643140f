"""Keeps the embedded Airflow small: before it starts, what ended long ago leaves its own database and its own logs.

Only these: a database that a person named in the environment is somebody's, and so are logs that lie elsewhere. No task
does this, and no Airflow but that of a home is ever tidied.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tally.base.duration import parse_duration
from tally.base.settings import Settings

# The command takes seconds, and nothing is worth them more than once a day.
EVERY = timedelta(days=1)
PATIENCE = 300.0


def database(run: Settings) -> Path:
    """The file of the home's own Airflow database."""
    return run.home / "airflow" / "airflow.db"


def url(run: Settings) -> str:
    """Its address. SQLite's own wait is 5 s: on a busy start-up the scheduler's first large write takes longer."""
    return f"sqlite:///{database(run)}?timeout=60"


def tidy(run: Settings, env: Mapping[str, str]) -> str:
    """Tidy what is this home's own, at most once a day, while no Airflow runs on it; what was done, "" for nothing.

    What cannot be tidied is said, and keeps no Airflow from starting: it is only larger than it need be.
    """
    done = run.home / "airflow" / "tidied"
    own = env.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") == url(run)
    if not own or not database(run).exists() or young(done):
        return ""
    before = datetime.now(UTC) - parse_duration(run.keep_airflow_runs, field="TALLY_KEEP_AIRFLOW_RUNS")
    dropped = drop_logs(run.home / "airflow" / "logs", before.timestamp())
    said = clean(before, env)
    done.touch()
    return said or f"dropped what ended before {before:%Y-%m-%d} from Airflow's database, and {dropped} logs as old"


def young(mark: Path) -> bool:
    """Whether the mark was made within the last day; one is made where there is none: a new home has nothing old."""
    if not mark.exists():
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        return True
    return 0 <= time.time() - mark.stat().st_mtime < EVERY.total_seconds()


def clean(before: datetime, env: Mapping[str, str]) -> str:
    """Run `airflow db clean` on the database of an environment; why it failed, "" where it did not."""
    command = [str(Path(sys.executable).parent / "airflow"), "db", "clean", "--skip-archive", "--yes"]
    command += ["--clean-before-timestamp", before.isoformat(timespec="seconds")]
    try:
        done = subprocess.run(
            command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"airflow db clean did not end in {PATIENCE:.0f} s"
    return f"airflow db clean ended with {done.returncode}:\n{done.stdout[-2000:]}" if done.returncode else ""


def drop_logs(folder: Path, before: float) -> int:
    """Delete the task logs that were last written before a time, and the folders that this empties; their number."""
    old = [file for file in folder.glob("dag_id=*/**/*.log") if file.stat().st_mtime < before]
    for file in old:
        file.unlink(missing_ok=True)
        for place in file.parents:
            if place == folder or any(place.iterdir()):
                break
            place.rmdir()
    return len(old)
