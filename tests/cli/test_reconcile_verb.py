"""`tally reconcile`: exit code 0 where the layers agree, 1 where windows are held, 2 for wrong use; one document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from reconcile.comparisons import STEP, T0, Comparison, difference, restated, slot, use_home

# The comparison is Spark's work and is tested with Spark; here it is one that was made before.
PROGRAM = """
import sys, types
made = types.ModuleType("tally.reconcile.compare")
made.compare = lambda name, start, end, ticket="": {number}
sys.modules["tally.reconcile.compare"] = made
from tally.cli import app
sys.exit(app.run(sys.argv[1:]))
"""
FIELDS = {"windows", "equal", "different", "events", "unexplained", "verdict", "rows", "sealed", "held", "open", "from"}


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Comparison:
    use_home(monkeypatch, tmp_path)
    made = Comparison()
    made.changes["batch_version"] = restated(made, (T0, T0 + 3 * STEP))
    return made


def reconcile(number: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(number=number), "reconcile", "vendor_trips", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=os.environ)


def test_reconciled_is_exit_code_0_and_one_document(comparison: Comparison) -> None:
    ran = reconcile(comparison.write(), "--json")
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["verdict"], found["sealed"], found["open"]) == (0, "reconciled", 2, 1)
    assert set(found) >= FIELDS
    assert found["events"] == {"late": 2} and found["conservation"]["balanced"]
    assert Path(found["data_docs"]).exists() and Path(found["page"]).exists()


def test_held_is_exit_code_1_with_the_rows_and_the_next_step(comparison: Comparison) -> None:
    comparison.slots[1] = slot(1, stream=1, bad=1)
    comparison.audit = [difference(1, 1, 3, 2, "unexplained"), difference(1, 2, 1, None)]
    key = {"window_start": "2026-09-21T14:15:00Z", "window_end": "2026-09-21T14:16:00Z", "vendor_id": 1}
    comparison.changes["rows"] = [{**key, "batch": {"trips": 3}, "stream": {"trips": 2}, "cause": "unexplained"}]
    number = comparison.write()
    machine, person = reconcile(number, "--json"), reconcile(number)
    found = json.loads(machine.stdout)
    assert (machine.returncode, person.returncode) == (1, 1)
    assert (found["verdict"], found["unexplained"], found["held"]) == ("held", 1, 1)
    assert found["rows"][0]["batch"] == {"trips": 3}
    for words in ("held: 1 slots sealed, 1 held, 1 still open", "trips 3", "trips 2", "next: ", "tally backfill"):
        assert words in person.stdout


def test_half_a_range_is_wrong_use(comparison: Comparison) -> None:
    ran = reconcile(comparison.write(), "--from", "2026-11-01T10:00:00Z", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["field"]) == (2, "--to")
