"""The floors of the house are kept, and a package that reached above its own would not pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tally.base.settings import REPO


def lint(include: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache", "--config", "pyproject.toml"]
    return subprocess.run(
        command, cwd=REPO, env={**os.environ, "PYTHONPATH": str(include)}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("base/errors.py", "", ""),
        ("speed/query.py", "from tally.supervise import watch", "tally.speed is not allowed to import tally.supervise"),
        ("control/ledger.py", "import pyspark", "tally.control is not allowed to import pyspark"),
        ("sources/records/decode.py", "from tally.sources import ingest", "No cycles are allowed in tally.sources"),
        (
            "orchestration/graph.py",
            "from tally.embedded import airflow",
            "tally.orchestration is not allowed to import tally.embedded",
        ),
        ("jobs/begin.py", "from tally.demo import events", "tally.jobs is not allowed to import tally.demo"),
        ("embedded/broker.py", "from tally.demo import run", "tally.embedded is not allowed to import tally.demo"),
    ],
)
def test_an_import_from_above_is_refused(tmp_path: Path, file: str, line: str, told: str) -> None:
    shutil.copytree(REPO / "include" / "tally", tmp_path / "tally", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tally" / file).write_text(f"{(tmp_path / 'tally' / file).read_text()}\n{line}\n")
    done = lint(tmp_path)
    assert (done.returncode, told in done.stdout) == (1 if told else 0, True), done.stdout + done.stderr
