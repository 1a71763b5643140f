"""kill -9 at each step of a commit, then go on: nothing is lost, nothing counts twice, as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import world as worlds
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from world import World

from tally.base.settings import settings
from tally.control import runs, seals
from tally.reconcile.rows.digest import Digest
from tally.reconcile.rows.hashes import digests

NAME = "tumbling_u"
# Ends that tell most; `make faults` kills at every other one too.
STREAM = {"speed.after_commit:3"}
STREAM_LONG = {"speed.before_commit:3", "speed.after_ledger:3", "speed.before_fold", "speed.after_fold"}
BATCH = {"ingest.between_quarantine_and_archive:2"}
BATCH_LONG = {"restate.after_commit", "ingest.before_quarantine:2", "ingest.after_archive:2", "restate.before_commit"}
SEAL_LONG = {"reconcile.after_compare", "seal.before_write"}


def cases(short: set[str], long: set[str]) -> list[object]:
    return [*sorted(short), *(pytest.param(name, marks=pytest.mark.long) for name in sorted(long))]


@dataclass
class Undisturbed:
    """What was produced, and what the batch gives for it when nobody kills anything."""

    world: World
    batch: dict[int, Digest]


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "25")
        patch.setenv("TALLY_MAX_OFFSETS_PER_INGEST", "60")
        patch.setenv("TALLY_FOLD_AFTER_BATCHES", "9")
        made = worlds.make(tmp_path_factory.mktemp("killed"), "killed.", broker, patch, [NAME])
        made.produce(worlds.story(3, 200, made.prefix) + worlds.flush(made.prefix))
        made.batch(NAME)
        yield Undisturbed(made, content(spark, made))


@pytest.fixture
def victim(undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The same topics and catalogue in a home where nothing was done yet."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    return undisturbed.world


def content(spark: SparkSession, world: World) -> dict[int, Digest]:
    rows = spark.read.format("delta").load(world.path("batch", NAME)).drop("_date")
    return digests(rows, world.pipeline(NAME))


def killed(failpoint: str, *words: str) -> None:
    """Run a verb of the command line that dies there; any other end is a failure of the test itself."""
    done = subprocess.run(
        [sys.executable, "-c", "from tally.cli import main; main()", *words],
        env={**os.environ, "TALLY_FAILPOINT": failpoint, "TALLY_SPARK_MEMORY": "512m", "TALLY_STREAM_MEMORY": "512m"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, f"{failpoint} was not passed: {done.stdout}{done.stderr}"


def offsets(layer: str, topic: str) -> Counter[tuple[int, int]]:
    """How often each offset lies in a table."""
    rows = DeltaTable(settings().table(layer, topic)).to_pyarrow_table(columns=["_partition", "_offset"]).to_pylist()
    return Counter((row["_partition"], row["_offset"]) for row in rows)


@pytest.mark.parametrize("path", worlds.PATHS)
@pytest.mark.parametrize("failpoint", cases(STREAM, STREAM_LONG))
def test_a_stream_that_dies_goes_on_where_it_was(
    victim: World, failpoint: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_SHARED", worlds.PATHS[path])
    killed(failpoint, "stream", NAME, "--until-caught-up")
    victim.stream(NAME)
    assert victim.path_of(NAME) == path
    victim.check_stream(NAME)
    commits = [
        c for c in DeltaTable(victim.path("speed", NAME)).history() if "micro-batch" in c.get("userMetadata", "")
    ]
    assert len(commits) == len(victim.ledger(NAME)), "one commit for each micro-batch"


@pytest.mark.parametrize("failpoint", cases(BATCH, BATCH_LONG))
def test_a_batch_that_dies_gives_the_same_table(
    victim: World, undisturbed: Undisturbed, spark: SparkSession, failpoint: str
) -> None:
    start, end = victim.span()
    killed(failpoint, "batch", NAME, "--from", start, "--to", end)
    victim.batch(NAME)
    assert content(spark, victim) == undisturbed.batch
    (topic,) = victim.topics(NAME)
    valid = {event.place for event in victim.events[topic]}
    everything = {(p, o) for p in range(worlds.PARTITIONS) for o in range(victim.ends[topic, p])}
    assert offsets("archive", topic) == Counter(valid)
    assert offsets("quarantine", topic) == Counter(everything - valid)
    history = runs.ingest_history(topic)
    assert [row.seq for row in history] == list(range(len(history)))
    assert sum(row.archived for row in history) == len(valid)
    assert all(row.gaps == 0 for row in history)


@pytest.mark.parametrize("failpoint", cases(set(), SEAL_LONG))
def test_a_reconciliation_that_dies_is_done_again_and_seals_once(victim: World, failpoint: str) -> None:
    from tally.jobs.reconcile import reconcile as reconciled

    victim.stream(NAME)
    victim.batch(NAME)
    killed(failpoint, "reconcile", NAME)
    assert seals.read(NAME, victim.pipeline(NAME).version) == [], "nothing is sealed by half"
    found = reconciled(NAME, None, None).as_json()
    assert (found["verdict"], found["unexplained"]) == ("reconciled", 0)
    sealed = seals.read(NAME, victim.pipeline(NAME).version)
    assert {(seal.state, seal.revision) for seal in sealed} == {("sealed", 1)}
