"""Kafka to a sealed window through the DAGs themselves, held against the producer's own record of what it sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tally.catalog.duration import iso, parse_instant, to_millis
from tally.catalog.load import load
from tally.demo.truth import read_truth
from tally.embedded.broker_files import free_port
from tally.settings import REPO, settings

PIPELINE = "vendor_trips"
TALLY = str(Path(sys.executable).parent / "tally")

RUN_DAG = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
dag = DagBag(sys.argv[1]).dags[sys.argv[2]]
run = dag.test()
print("states:", json.dumps({ti.task_id: str(ti.state) for ti in run.get_task_instances()}))
"""


@pytest.fixture(scope="module")
def own(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a broker of its own: the truth is of all rides that were ever sent, and other tests send some too."""
    folder = tmp_path_factory.mktemp("end-to-end")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_HOME", str(folder))
        patch.setenv("TALLY_KAFKA_PORT", str(free_port()))
        patch.setenv("TALLY_KAFKA_HEAP", "256m")
        try:
            tally("up")
            yield folder
        finally:
            tally("down")


@pytest.fixture(scope="module")
def airflow(own: Path) -> dict[str, str]:
    """The environment of an Airflow with a database of its own, migrated."""
    folder = own / "airflow-of-test"
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
    }
    subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], env=env, check=True, capture_output=True, timeout=300
    )
    return env


def tally(*arguments: str, code: int = 0) -> Any:
    done = subprocess.run([TALLY, *arguments, "--json"], capture_output=True, text=True, timeout=400)
    assert done.returncode == code, f"tally {arguments}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return json.loads(done.stdout)


def run_dag(airflow: dict[str, str], name: str) -> tuple[dict[str, str], str]:
    """Run a DAG to its end; each task's state, and the log."""
    command = [sys.executable, "-c", RUN_DAG, str(REPO / "dags"), name]
    done = subprocess.run(command, env=airflow, capture_output=True, text=True, timeout=600)
    said = [line for line in done.stdout.splitlines() if line.startswith("states:")]
    assert said, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(said[-1].removeprefix("states:")), done.stdout + done.stderr


def truth_windows(home: Path) -> dict[tuple[int, int], tuple[int, float]]:
    """Rides and takings per minute and vendor, from what the producer wrote down; every ride once."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for sent in read_truth(home / "truth" / "rides.csv"):
        if sent.kind in ("good", "late") and sent.event_time_ms is not None:
            minute = sent.event_time_ms - sent.event_time_ms % 60_000
            found[minute, int(sent.fields["vendor_id"])].append(float(sent.fields["total_amount"]))
    return {key: (len(values), round(sum(values), 2)) for key, values in found.items()}


def rows(layer: str) -> dict[tuple[int, int], dict[str, Any]]:
    found = tally("read", PIPELINE, "--layer", layer)
    return {(to_millis(parse_instant(row["window_start"])), row["vendor_id"]): row for row in found}


def a_closed_row() -> dict[str, Any]:
    """A row in the middle of the stream's closed ones."""
    closed = [
        row for row in tally("read", PIPELINE, "--layer", "speed") if row["state"] == "closed" and row["trips"] > 1
    ]
    return dict(closed[len(closed) // 2])


def change(row: dict[str, Any], by: float) -> None:
    """Change the takings of one row of the stream's table behind everybody's back."""
    version = load(REPO / "spark").pipelines[PIPELINE].version
    micros = to_millis(parse_instant(row["window_start"])) * 1000
    where = f"cast(window_start as bigint) = {micros} and vendor_id = {row['vendor_id']}"
    table = DeltaTable(settings().table("speed", PIPELINE, version))
    done = table.update(updates={"takings": f"takings + {by}"}, predicate=where)
    assert done["num_updated_rows"] >= 1


@pytest.mark.timeout(1500)
def test_from_kafka_to_sealed_windows(own: Path, airflow: dict[str, str]) -> None:
    """Two rounds of rides with late, double and bad ones; a wrong number is held, and sealed when it is mended."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=4)
    for part in range(2):
        begin = iso(start + timedelta(seconds=3000 * part))
        tally(
            "produce", "rides", "--count", "3000", "--rate", "1", "--start", begin, "--no-payments", "--seed", str(part)
        )
        tally("stream", PIPELINE, "--until-caught-up")

    states, log = run_dag(airflow, f"batch__{PIPELINE}")
    assert set(states.values()) == {"success"}, log[-3000:]
    expected = truth_windows(own)
    batch = rows("batch")
    assert {key: (row["trips"], round(row["takings"], 2)) for key, row in batch.items()} == expected

    wrong = a_closed_row()
    change(wrong, 0.01)
    states, log = run_dag(airflow, f"reconcile__{PIPELINE}")
    assert (states["compare"], states["judge"]) == ("success", "failed"), log[-3000:]
    assert states["seal"] in ("upstream_failed", "None", "skipped")
    held = {row["window_start"] for row in tally("read", PIPELINE) if row["state"] == "held"}
    assert held == {wrong["window_start"]}

    change(wrong, -0.01)
    states, log = run_dag(airflow, f"reconcile__{PIPELINE}")
    assert set(states.values()) == {"success"}, log[-3000:]

    served = rows("served")
    sealed = {key: row for key, row in served.items() if row["state"] == "sealed"}
    assert len(sealed) > 0.9 * len(expected)
    assert {key: (row["trips"], round(row["takings"], 2)) for key, row in sealed.items()} == {
        k: expected[k] for k in sealed
    }
    found = tally(
        "reconcile", PIPELINE, "--from", iso(start - timedelta(hours=1)), "--to", iso(start + timedelta(hours=2))
    )
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    classes = [sent.kind for sent in read_truth(own / "truth" / "rides.csv")]
    assert found["ingest"]["rides"]["archived"] == sum(not kind.startswith("bad") for kind in classes)
    assert sum(found["ingest"]["rides"]["quarantined"].values()) == sum(kind.startswith("bad") for kind in classes)
    assert 0 < found["events"]["late"] <= classes.count("late")
