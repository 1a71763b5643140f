"""The command line: exit codes, one JSON document, and never a traceback on the terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import definitions
import pytest

PROGRAM = "import sys; from tally.cli import app; {before}; sys.exit(app.run(sys.argv[1:]))"


def tally(*arguments: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before or "pass"), *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=os.environ | environment,
    )


STUB = "app._load = lambda verb: (lambda: (_ for _ in ()).throw({}))"


def test_help_names_every_verb_and_imports_no_command(home: Path) -> None:
    from tally.cli.app import VERBS

    shown = tally("--help")
    assert shown.returncode == 0
    assert [verb for verb in VERBS if verb not in shown.stdout] == []
    light = tally("--help", before="import atexit; atexit.register(lambda: print(*sys.modules, file=sys.stderr))")
    assert {"pyspark", "pydantic_settings", "confluent_kafka", "sqlalchemy"} & set(light.stderr.split()) == set()


def test_every_verb_loads_and_takes_json(home: Path) -> None:
    from tally.cli.app import VERBS

    for verb in VERBS:
        shown = tally(verb, "--help")
        assert shown.returncode == 0, shown.stderr
        assert "--json" in shown.stdout


@pytest.mark.parametrize("arguments", [("nope",), ("up", "--nope"), ("check", "extra")])
def test_wrong_use_is_exit_code_2_with_a_cure(home: Path, arguments: tuple[str, ...]) -> None:
    plain, machine = tally(*arguments), tally(*arguments, "--json")
    assert (plain.returncode, plain.stdout) == (2, "")
    assert "cure: tally" in plain.stderr
    assert machine.returncode == 2
    assert set(json.loads(machine.stdout)) >= {"error", "cure"}


def test_a_bad_setting_is_named(home: Path) -> None:
    ran = tally("up", "--json", TALLY_KAFKA_PORT="abc")
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["field"] == "TALLY_KAFKA_PORT"


def test_a_home_that_cannot_be_written_is_said_so(home: Path) -> None:
    ran = tally("status", "--json", TALLY_HOME="/proc/nope")
    assert ran.returncode == 2
    told = json.loads(ran.stdout)
    assert told["field"] == "TALLY_HOME" and "/proc/nope" in told["error"] and told["cure"]


def test_settings_out_of_range_are_named(home: Path) -> None:
    for name, value in (("TALLY_KAFKA_PORT", "70000"), ("TALLY_AIRFLOW_PORT", "-1"), ("TALLY_CONTROL", "foo")):
        ran = tally("status", "--json", **{name: value})
        assert ran.returncode == 2, ran.stdout
        assert json.loads(ran.stdout)["field"] == name


def test_the_unexpected_is_one_line_and_a_file(home: Path) -> None:
    ran = tally("down", before=STUB.format("KeyError('lost')"))
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr + ran.stdout
    file = Path(ran.stderr.split("the traceback is in ")[1].strip())
    assert file.parent == home / "logs"
    assert "KeyError: 'lost'" in file.read_text()


def test_ctrl_c_is_130_and_silent(home: Path) -> None:
    ran = tally("down", before=STUB.format("KeyboardInterrupt()"))
    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (130, "", "")


def test_with_json_only_the_document_is_on_stdout(tmp_path: Path) -> None:
    noise = "import os; load = app._load; app._load = lambda verb: (os.system('echo noise'), load(verb))[1]"
    ran = tally("down", "--json", before=noise, TALLY_HOME=str(tmp_path))  # in ours a broker may run
    assert json.loads(ran.stdout) == {"stopped": []}
    assert "noise" in ran.stderr


def test_every_broken_definition_is_told_at_once_and_breaks_no_other(home: Path, tmp_path: Path) -> None:
    folder = definitions.write(tmp_path / "catalogue")
    for name in ("supply", "takings"):
        (folder / "pipelines" / f"{name}.py").write_text("X = = 1\n")
    checked = tally("check", "--no-spark", "--json", TALLY_CATALOG=str(folder))
    assert checked.returncode == 1
    found = {row["pipeline"]: row["errors"] for row in json.loads(checked.stdout)["pipelines"]}
    assert set(found) == {"demand", "supply", "takings"} and found["demand"] == []
    for name in ("supply", "takings"):
        (fault,) = found[name]
        assert f"{name}.py:1: invalid syntax" in fault and "cure:" in fault
    shown = tally("status", "--json", TALLY_CATALOG=str(folder))
    rows = {row["pipeline"]: row for row in json.loads(shown.stdout)}
    assert rows["demand"]["state"] == "dead" and rows["supply"]["state"] == "failed"
    assert "supply.py:1" in rows["supply"]["reason"] and set(rows["supply"]) == set(rows["demand"])
    refused = tally("batch", "supply", "--from", "2024-01-01", "--to", "2024-01-02", TALLY_CATALOG=str(folder))
    assert refused.returncode == 2 and "supply.py:1: invalid syntax" in refused.stderr
