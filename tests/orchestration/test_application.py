"""What a Spark application of a task died of is the task's failure, in its own words; and to which Spark it goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tally.base.errors import AnswerIsNo, TallyError
from tally.host.answer import VARIABLE, Answer, awaited, refuse
from tally.lake.memory import JvmEnded
from tally.orchestration import application, steps
from tally.orchestration.application import SparkApplication

NO = AnswerIsNo("no such window", pipeline="trips", cure="tally check")


@pytest.fixture(autouse=True)
def own_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.setattr(application, "master", lambda: None)
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    monkeypatch.setitem(os.environ, "AIRFLOW_CONN_SPARK_DEFAULT", "")  # what a task sets is undone with it


def failing(*said: TallyError, full: bool = False) -> Any:
    """In place of spark-submit: what the application leaves before it ends with an exit code."""

    def submit(_: Any, __: str = "", **___: Any) -> None:
        for error in said:
            refuse(error)
        if full:
            Path(f"{os.environ[VARIABLE]}.full").touch()
        raise AirflowException("Cannot execute: spark-submit. Error code is: 7.")

    return submit


@pytest.mark.parametrize(
    ("said", "full", "kind", "words"),
    [
        ([NO], False, AirflowFailException, ["trips: no such window\n  cure: tally check"]),
        ([TallyError("Kafka does not answer", field="TALLY_KAFKA")], False, AirflowException, ["TALLY_KAFKA: Kafka"]),
        ([JvmEnded("its JVM was killed (kill -9)")], False, AirflowException, ["its JVM was killed"]),
        ([], True, AirflowException, ["out of memory: the JVM's heap of 1g was full", "TALLY_SPARK_MEMORY", "cure: "]),
        ([], False, AirflowException, ["Cannot execute: spark-submit"]),
    ],
)
def test_its_own_words_are_the_tasks_failure_and_only_a_no_is_final(
    said: list[TallyError], full: bool, kind: type, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSubmitHook, "submit", failing(*said, full=full))
    task = SparkApplication(script="batch.py", arguments=["trips"], task_id="batch")
    with pytest.raises(AirflowException) as failed:
        task.execute({})
    assert type(failed.value) is kind and all(word in str(failed.value) for word in words)


def submitted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The arguments of each application that is submitted from here on."""
    found: list[list[str]] = []
    monkeypatch.setattr(SparkSubmitHook, "submit", lambda hook, *_, **__: found.append(hook._application_args))
    return found


def asked(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[str, ...]]:
    """What the step of a comparison is asked from here on; it answers so, or raises it."""
    found: list[tuple[str, ...]] = []

    def step(*arguments: str) -> bool:
        found.append(arguments)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    monkeypatch.setattr(steps, "compare", step)
    return found


def comparing() -> SparkApplication:
    return SparkApplication(
        script="reconcile.py", arguments=["trips", "", "--ticket", "t"], first="compare", task_id="compare"
    )


@pytest.mark.parametrize("done", [True, False])
def test_spark_is_asked_only_what_is_not_done_without_it(done: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, first = submitted(monkeypatch), asked(monkeypatch, done)
    comparing().execute({})
    assert first == [("trips", "--ticket", "t")]
    assert sent == ([] if done else [["trips", "--ticket", "t"]])


@pytest.mark.parametrize(
    ("refusal", "kind"), [(NO, AirflowFailException), (TallyError("it is locked", field="x"), AirflowException)]
)
def test_a_refusal_without_spark_is_the_applications_own(
    refusal: TallyError, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, _ = submitted(monkeypatch), asked(monkeypatch, refusal)
    with pytest.raises(AirflowException) as failed:
        comparing().execute({})
    assert type(failed.value) is kind and str(failed.value) == str(refusal) and sent == []


@pytest.mark.parametrize(("theirs", "setting"), [("spark://theirs:7077", "local[2]"), (None, "spark://ours:7077")])
def test_a_spark_elsewhere_is_not_spoken_for(theirs: str | None, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "master", lambda: theirs)
    monkeypatch.setenv("TALLY_SPARK_MASTER", setting)
    sent, first = submitted(monkeypatch), asked(monkeypatch, True)
    comparing().execute({})
    assert first == [] and len(sent) == 1


def test_an_answer_is_read_once_and_leaves_nothing_behind() -> None:
    with awaited() as place:
        assert place.read() == Answer()
        assert refuse(NO) == 1
        assert place.read() == Answer(said=str(NO), final=True)
        folder = place.file.parent
    assert not folder.exists() and VARIABLE not in os.environ
    assert refuse(NO) == 1, "nobody waits: it is printed, and that is all"


def test_a_real_jvm_whose_heap_is_full_leaves_word(tmp_path: Path) -> None:
    (tmp_path / "Fill.java").write_text(
        "public class Fill { public static void main(String[] a) { long[] x = new long[1 << 29]; } }"
    )
    java = shutil.which("java")
    option = application.HEAP_IS_FULL.replace('"', "")  # Spark takes its options apart at quotes, as a shell does
    with awaited() as place:
        done = subprocess.run(
            [str(java), "-Xmx64m", option, "-XX:+ExitOnOutOfMemoryError", str(tmp_path / "Fill.java")],
            capture_output=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 3
        assert place.read() == Answer(heap_was_full=True)


# The task's own look at its connections, with one that a person made in the UI, and without any.
CONNECTED = """
import os, sys
from unittest import mock
from airflow.dag_processing.dagbag import DagBag
from airflow.models import Connection
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.utils.session import create_session
if sys.argv[1] != "-":
    with create_session() as session:
        session.add(Connection(conn_id="spark_default", conn_type="spark", host=sys.argv[1]))
def submit(hook, application, **_):
    open(sys.argv[2], "w").write(hook._connection["master"])
with mock.patch.object(SparkSubmitHook, "submit", submit):
    DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]).dags["asks"].test()
"""
ASKS = """
from airflow.sdk import DAG
from tally.orchestration.application import SparkApplication
with DAG("asks", schedule=None):
    SparkApplication(script="batch.py", arguments=["trips"], task_id="t")
"""


@pytest.mark.parametrize(("made", "used"), [("spark://theirs:7077", "spark://theirs:7077"), ("-", "local[2]")])
def test_a_connection_that_a_person_made_wins_over_the_settings(
    made: str, used: str, airflow_database: dict[str, str], tmp_path: Path
) -> None:
    airflow, dags = tmp_path / "airflow", tmp_path / "dags"
    airflow.mkdir()
    dags.mkdir()
    (dags / "asks.py").write_text(ASKS)
    shutil.copy(Path(airflow_database["AIRFLOW_HOME"], "airflow.db"), airflow)
    own = {"AIRFLOW_HOME": str(airflow), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{airflow}/airflow.db"}
    own["AIRFLOW__CORE__DAGS_FOLDER"] = str(dags)
    env = {name: value for name, value in os.environ.items() if name != "AIRFLOW_CONN_SPARK_DEFAULT"}
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, made, str(tmp_path / "master")],
        env=env | airflow_database | own, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (tmp_path / "master").exists(), done.stdout[-2000:] + done.stderr[-3000:]
    assert (tmp_path / "master").read_text() == used


def test_nothing_is_read_out_of_the_providers_private_parts() -> None:
    text = Path(application.__file__).read_text()
    assert "_hook" not in text and "_last_submit" not in text and "Error code" not in text


def test_the_embedded_airflow_shadows_no_connection() -> None:
    from tally.base.settings import settings
    from tally.embedded import airflow

    before = os.environ.pop("AIRFLOW_CONN_SPARK_DEFAULT")
    assert "AIRFLOW_CONN_SPARK_DEFAULT" not in airflow.environment(settings(), 4242)
    os.environ["AIRFLOW_CONN_SPARK_DEFAULT"] = before
