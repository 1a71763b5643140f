"""Kafka to sealed windows, held against the producer's own record of what it sent: one pipeline through the DAGs
themselves, and the one that docs/write_a_pipeline.md adds to the catalogue through the layers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import definitions
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from bench import truth
from tally.base.duration import iso, parse_instant, to_millis
from tally.base.settings import REPO, settings
from tally.catalog.load import catalogue
from tally.control import ledger, runs
from tally.demo.truth import read_truth
from tally.embedded.broker_files import free_port
from tally.jobs.batch import batch as restated
from tally.reconcile.compare import compare
from tally.reconcile.judge import judge
from tally.reconcile.seal import seal
from tally.sources.client import librdkafka
from tally.sources.kafka import end_offsets

PIPELINE, FIFTH = "vendor_trips", "tips_by_zone"
LATENESS_MS, MINUTE_MS = 600_000, 60_000
TALLY = str(Path(sys.executable).parent / "tally")

# One Airflow for all runs: each line of its input is a DAG to run to its end; with a range, as Airflow's own backfill
# would run that interval, where tasks that were not cleared are done already.
RUN_DAGS = """
import json, sys
from datetime import datetime
from itertools import count
import airflow.models.dagrun as made
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
dags, manual, number = DagBag(sys.argv[1]).dags, made.get_or_create_dagrun, count()
for line in sys.stdin:
    asked = json.loads(line)
    def backfilled(*, dag, session, run_after, **_):
        first, last = map(datetime.fromisoformat, asked["span"])
        for old in session.query(made.DagRun).filter_by(dag_id=dag.dag_id, logical_date=first):
            session.delete(old)
        session.commit()
        return dag.create_dagrun(
            run_id=f"backfill-{next(number)}", run_type=DagRunType.BACKFILL_JOB, logical_date=first,
            data_interval=(first, last), run_after=run_after, state=DagRunState.RUNNING, session=session,
            triggered_by=DagRunTriggeredByType.TEST, start_date=run_after,
        )
    made.get_or_create_dagrun = backfilled if asked["span"] else manual
    run = dags[asked["dag"]].test(run_conf=asked["conf"], mark_success_pattern=asked["done"])
    print("states:", json.dumps({ti.task_id: str(ti.state) for ti in run.get_task_instances()}), flush=True)
"""


@dataclass(frozen=True)
class Airflow:
    """A process that runs this home's DAGs, one after the other."""

    process: subprocess.Popen[str]

    def run(
        self, dag: str, *, conf: dict[str, Any] | None = None, span: tuple[str, str] | None = None, done: str = ""
    ) -> tuple[dict[str, str], str]:
        """Run a DAG to its end; each task's state, and the log."""
        assert self.process.stdin and self.process.stdout
        asked = {"dag": dag, "conf": conf, "span": span, "done": done or None}
        self.process.stdin.write(f"{json.dumps(asked)}\n")
        self.process.stdin.flush()
        log = []
        for line in self.process.stdout:
            if line.startswith("states:"):
                return json.loads(line.removeprefix("states:")), "".join(log)
            log.append(line)
        raise AssertionError("".join(log)[-6000:])


@pytest.fixture(scope="module")
def own(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a broker of its own: the truth is of all rides that were ever sent, and other tests send some too."""
    folder = tmp_path_factory.mktemp("end-to-end")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_HOME", str(folder))
        patch.setenv("TALLY_KAFKA_PORT", str(free_port()))
        patch.setenv("TALLY_KAFKA_HEAP", "256m")
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "1000")
        patch.setenv("TALLY_CATALOG", str(definitions.with_the_pipeline_of_the_page(folder).parents[1]))
        try:
            tally("up")
            yield folder
        finally:
            tally("down")


@pytest.fixture(scope="module")
def airflow(own: Path, airflow_database: dict[str, str]) -> Iterator[Airflow]:
    # Airflow's own dag.test() takes the deadline of a DAG for the number of one, and ends with an error.
    environment = os.environ | airflow_database | {"TALLY_DEADLINE": ""}
    command = [sys.executable, "-c", RUN_DAGS, str(REPO / "dags")]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield Airflow(process)
        finally:
            process.kill()


def tally(*arguments: str, code: int = 0) -> Any:
    done = subprocess.run([TALLY, *arguments, "--json"], capture_output=True, text=True, timeout=400)
    assert done.returncode == code, f"tally {arguments}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
    return json.loads(done.stdout)


def tips(home: Path) -> dict[tuple[int, int], tuple[float, float]]:
    """Tips and largest tip per five minutes and zone, worked out from Kafka's own bytes; every ride once."""
    counted = {
        (sent.partition, sent.offset): sent.event_time_ms
        for sent in read_truth(home / "truth" / "rides.csv")
        if sent.kind in ("good", "late")
    }
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    for place, body in records("rides"):
        if (time := counted.get(place)) is not None:
            ride = json.loads(body)
            if ride["total_amount"] > 0:
                found[time - time % 300_000, ride["pickup_zone"]].append(ride["tip"])
    return {key: (round(sum(values), 2), max(values)) for key, values in found.items()}


def records(topic: str) -> Iterator[tuple[tuple[int, int], bytes]]:
    """(partition, offset) and bytes of every record of a topic."""
    ends = end_offsets(topic)
    consumer = Consumer({**librdkafka(), "group.id": "oracle", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    left = sum(ends.values())
    while left:
        for message in consumer.consume(10_000, 1.0):
            left -= 1
            yield (message.partition(), message.offset()), message.value() or b""
    consumer.close()


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
    version = catalogue().pipeline(PIPELINE).version
    micros = to_millis(parse_instant(row["window_start"])) * 1000
    where = f"cast(window_start as bigint) = {micros} and vendor_id = {row['vendor_id']}"
    table = DeltaTable(settings().table("speed", PIPELINE, version))
    done = table.update(updates={"takings": f"takings + {by}"}, predicate=where)
    assert done["num_updated_rows"] >= 1


def plain(found: truth.Windows) -> dict[tuple[int, int], tuple[int, float]]:
    return {(start, int(vendor)): (trips, round(takings, 2)) for (start, vendor), (trips, takings) in found.items()}


@pytest.fixture(scope="module")
def sent(own: Path) -> datetime:
    """Rides with late, double and bad ones, taken by the stream in several micro-batches; when the first one began."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=4)
    tally("produce", "rides", "--count", "6000", "--rate", "1", "--start", iso(start), "--no-payments")
    streamed = tally("stream", PIPELINE, FIFTH, "--until-caught-up")
    assert [one["batches"] > 4 for one in streamed["pipelines"]] == [True, True]
    return start


def span(sent: datetime) -> tuple[str, str]:
    """All windows of the rides that were sent."""
    return iso(sent - timedelta(hours=2)), iso(sent + timedelta(hours=3))


@pytest.mark.timeout(1500)
def test_from_kafka_to_sealed_windows(own: Path, airflow: Airflow, sent: datetime) -> None:
    """A wrong number is held, and sealed when it is mended; each count is the producer's.

    All in one run of Airflow's own backfill, of which the last tasks are then cleared.
    """
    wrong = a_closed_row()
    change(wrong, 0.01)
    states, log = airflow.run("archive__rides")
    assert states == {"ingest": "success"}, log[-3000:]
    states, log = airflow.run(f"batch__{PIPELINE}", span=span(sent))
    came_to = [states[task] for task in ("wait", "restate", "compare", "judge")]
    assert came_to == ["success", "success", "success", "failed"], log[-3000:]
    assert states["seal"] in ("upstream_failed", "None", "skipped")
    windows, _ = truth.windows(own / "truth" / "rides.csv")
    expected = plain(windows)
    batch = rows("batch")
    assert {key: (row["trips"], round(row["takings"], 2)) for key, row in batch.items()} == expected
    held = {row["window_start"] for row in tally("read", PIPELINE) if row["state"] == "held"}
    assert held == {wrong["window_start"]}

    change(wrong, -0.01)
    states, log = airflow.run(f"batch__{PIPELINE}", span=span(sent), done="wait|restate")
    assert set(states.values()) == {"success"}, log[-3000:]

    sealed = {key: row for key, row in rows("served").items() if row["state"] == "sealed"}
    newest = ledger.newest(PIPELINE, catalogue().pipeline(PIPELINE).version)
    assert newest is not None and max(start for start, _ in expected) - newest.watermark < LATENESS_MS + MINUTE_MS
    assert sealed.keys() == {key for key in expected if key[0] + MINUTE_MS <= newest.watermark}
    assert {key: (row["trips"], round(row["takings"], 2)) for key, row in sealed.items()} == {
        k: expected[k] for k in sealed
    }
    assert runs.reconciliation_history(PIPELINE)[0].verdict == "reconciled"

    since, until = span(sent)
    states, log = airflow.run("reconcile", conf={"pipelines": [PIPELINE], "from": since, "to": until})
    assert states == dict.fromkeys(("choose", "each.compare", "each.judge", "each.seal"), "success"), log[-3000:]
    assert runs.reconciliation_history(PIPELINE)[0].verdict == "reconciled"
    assert {key: row["revision"] for key, row in rows("served").items() if row["state"] == "sealed"} == {
        key: row["revision"] for key, row in sealed.items()
    }


@pytest.mark.timeout(600)
def test_every_count_is_the_producer_s(own: Path, spark: SparkSession, sent: datetime) -> None:
    """Over all windows, also those that are still open: late, double and refused, each to the last record."""
    row = runs.reconciliation(compare(PIPELINE, *span(sent)))
    assert row is not None
    found = row.summary
    _, classes = truth.windows(own / "truth" / "rides.csv")
    batches = ledger.read(PIPELINE, catalogue().pipeline(PIPELINE).version)
    assert {batch.ids for batch in batches} == {ledger.NEAR}, "it shares its topic's stream"
    ranges = [{"ranges": batch.ranges} for batch in batches]
    late = truth.late(own / "truth" / "rides.csv", ranges, "rides", LATENESS_MS, shared=True)
    assert (found["unexplained"], found["events"]) == (0, {"late": late})
    bad = sum(number for kind, number in classes.items() if kind.startswith("bad"))
    assert found["ingest"]["rides"]["archived"] == sum(classes.values()) - bad
    assert sum(found["ingest"]["rides"]["quarantined"].values()) == bad
    assert found["conservation"]["duplicate"] == classes["duplicate"]
    assert late > 0 and classes["duplicate"] > 0 and bad > 0, "or nothing was shown"


@pytest.mark.timeout(600)
def test_the_pipeline_of_the_page_gives_what_kafka_holds(own: Path, spark: SparkSession, sent: datetime) -> None:
    """One new file in the catalogue: stream, batch, comparison, judgement and seals follow from it."""
    restated(FIFTH, *span(sent))
    expected = tips(own)
    assert {
        (to_millis(parse_instant(row["window_start"])), row["pickup_zone"]): (round(row["tips"], 2), row["largest"])
        for row in tally("read", FIFTH, "--layer", "batch")
    } == expected
    number = compare(FIFTH)
    verdict = judge(number)
    assert verdict.verdict == "reconciled", verdict
    seal(number)
    served = tally("read", FIFTH)
    sealed = [row for row in served if row["state"] == "sealed"]
    assert len(sealed) > 0.8 * len(served) and len(served) == len(expected)
    assert [(round(row["tips"], 2), row["largest"]) for row in sealed] == [
        expected[to_millis(parse_instant(row["window_start"])), row["pickup_zone"]] for row in sealed
    ]
