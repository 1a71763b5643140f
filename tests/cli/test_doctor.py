"""`tally doctor` says of each thing that a stream needs if it is good, and what to do first; `tally rebuild` heals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harmed
import pytest
from harmed import NAME
from pyspark.sql import SparkSession
from world import World

from tally.control import incidents, streams
from tally.host import driver_files, lock

CHECKS = {"definition", "disk", "control store", "kafka", "checkpoint", "offsets log", "commit log", "ledger", "table",
          "topic", "retention", "wanted", "driver", "lock", "incidents"}  # fmt: skip


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        yield harmed.make(tmp_path_factory.mktemp("doctor"), "doctor.", broker, patch, "shared")


@pytest.fixture
def copy(stopped: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A stopped stream, wanted so: nothing is wrong with it."""
    copied = harmed.copied(stopped, tmp_path, monkeypatch)
    streams.want(NAME, "paused", by="a test", why="nobody drives it")
    return copied


def tally(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; from tally.cli import app; sys.exit(app.run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True, text=True, timeout=400, check=False, env=os.environ | environment,
    )  # fmt: skip


def asked(**environment: str) -> tuple[int, dict[str, Any]]:
    ran = tally("doctor", NAME, "--json", **environment)
    return ran.returncode, json.loads(ran.stdout)


def bad(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["check"]: check for check in document["checks"] if not check["ok"]}


def test_where_all_is_well_each_check_says_so(copy: World, tmp_path: Path) -> None:
    code, told = asked()
    assert (code, told["ok"], told["first"], bad(told)) == (0, True, None, {})
    assert {check["check"] for check in told["checks"]} == CHECKS
    shown = tally("doctor", NAME, JAVA_HOME=str(tmp_path))  # no JVM can be started: a person waits
    lines = shown.stdout.splitlines()
    assert shown.returncode == 0 and lines[-1] == "all is well: nothing to do"
    assert all(line.startswith("ok ") for line in lines[:-1])
    assert "wanted: paused since" in shown.stdout and "nobody drives it" in shown.stdout


def test_drivers_that_died_in_a_row_are_told_with_what_they_died_of(copy: World) -> None:
    app = (streams.stream(NAME) or {})["app"]
    streams.want(NAME, "running", by="a test", why="")
    streams.register_driver(app, "here", 1, 0.0, "the.log")
    streams.died(app, 3, 0, "out of memory: the JVM's heap was full")
    incidents.report("", "driver died", "driver 1 is gone (out of memory)", cure="a larger heap")

    def told_of_memory() -> bool:
        found = bad(asked()[1])
        assert "driver 1 is gone" in found["incident"]["seen"] and found["incident"]["cure"] == "a larger heap"
        return "out of memory" in found["driver"]["seen"] and "TALLY_STREAM_MEMORY" in found["driver"]["cure"]

    assert told_of_memory(), "none lives"
    with lock.hold(driver_files.lock_path(app)):
        assert told_of_memory(), "the next one lives, and nothing says yet that it will not die of it too"


def test_what_is_bad_has_its_cure_below_it_and_the_last_line_says_what_to_do_first(copy: World) -> None:
    shutil.rmtree(harmed.root(copy))
    incidents.report(NAME, "stream failed", "it was seen to fail", cure="look at it")
    code, told = asked()
    assert code == 1 and set(bad(told)) == {"checkpoint", "incident"}
    assert (
        "it was deleted" in bad(told)["checkpoint"]["seen"] and "it was seen to fail" in bad(told)["incident"]["seen"]
    )
    shown = tally("doctor", NAME)
    lines = shown.stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("BAD  checkpoint: ")]
    assert lines[at + 1].startswith("     cure: ") and f"tally rebuild {NAME}" in lines[at + 1]
    assert lines[-1] == f"first: {told['first']}" and told["first"] == bad(told)["checkpoint"]["cure"]


def test_it_looks_and_changes_nothing(copy: World) -> None:
    (harmed.root(copy) / "offsets" / str(harmed.newest(copy).batch + 1)).write_bytes(b"")
    before = {str(p): p.read_bytes() for p in harmed.root(copy).rglob("*") if p.is_file()}
    code, told = asked()
    assert code == 1 and set(bad(told)) == {"offsets log"}
    assert {str(p): p.read_bytes() for p in harmed.root(copy).rglob("*") if p.is_file()} == before
    assert incidents.history(NAME) == []


def test_a_driver_that_should_run_and_does_not_is_bad(copy: World) -> None:
    streams.want(NAME, "running", by="a test", why="")
    code, told = asked()
    assert code == 1 and set(bad(told)) == {"driver"}
    assert "tally stream" in bad(told)["driver"]["cure"]


def test_a_kafka_that_is_silent_is_said_once(copy: World) -> None:
    code, told = asked(TALLY_KAFKA="127.0.0.1:1")
    assert code == 1 and set(bad(told)) == {"kafka"}
    assert "Kafka does not answer" in bad(told)["kafka"]["seen"]


def test_a_control_store_that_does_not_open_is_said(copy: World) -> None:
    code, told = asked(TALLY_CONTROL="sqlite:////proc/nope/control.db")
    assert code == 1 and set(bad(told)) == {"control store"}


def test_a_definition_that_does_not_load_is_bad_and_an_unknown_name_is_wrong_use(copy: World, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(copy.folder / "catalogue", broken)
    (broken / "pipelines" / f"{NAME}.py").write_text("x = = 1\n")
    code, told = asked(TALLY_CATALOG=str(broken))
    assert code == 1 and set(bad(told)) == {"definition"} and "invalid syntax" in bad(told)["definition"]["seen"]
    for verb in ("doctor", "rebuild"):
        ran = tally(verb, "nope", "--json")
        assert ran.returncode == 2 and json.loads(ran.stdout)["error"] == "no such pipeline"


def test_a_rebuild_says_what_it_will_do_and_lets_go_of_what_held_the_stream(copy: World) -> None:
    streams.show(NAME, state="gave_up", reason="it was refused", failures=7, retry_at=1)
    incidents.report(NAME, "stream refused", "it was refused")
    ran = tally("rebuild", NAME, "--why", "a test", "--json")
    told = json.loads(ran.stdout)
    assert ran.returncode == 0, ran.stderr
    (topic,) = copy.topics(NAME)
    ends = {str(partition): copy.ends[topic, partition] for partition in (0, 1)}
    assert (told["generation"], told["from"], told["to"]) == (2, {topic: {"0": 0, "1": 0}}, {topic: ends})
    assert (told["records"], told["incidents_closed"]) == (sum(ends.values()), 1)
    row = streams.stream(NAME) or {}
    assert (row["state"], row["reason"], row["failures"], row["retry_at"]) == ("starting", "", 0, 0)
    assert {(one.cause, one.done.split(": ")[1]) for one in incidents.history(NAME)} == {
        ("stream refused", "a test"), ("rebuilt", "a test"),
    }  # fmt: skip
    assert [one for one in incidents.history(NAME) if not one.closed_at] == []
    assert harmed.root(copy).name == "g2" and [path.name for path in harmed.root(copy).iterdir()] == ["rebuilt.json"]
    code, seen = asked()
    assert code == 0 and "generation 2 begins" in next(c["seen"] for c in seen["checks"] if c["check"] == "checkpoint")
    shown = tally("rebuild", NAME)
    assert "generation 3 reads" in shown.stdout and f"{topic}, partition 1: offsets [0, " in shown.stdout
