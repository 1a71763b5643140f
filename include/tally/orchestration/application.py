"""A Spark application of Tally as a task: the provider's SparkSubmitOperator, with this installation's Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from tally.base.errors import AnswerIsNo, TallyError
from tally.base.settings import REPO, Settings, settings
from tally.host.answer import HEAP_IS_FULL, Answer, awaited
from tally.host.process import write_whole
from tally.lake import memory
from tally.lake.session import python, spark_conf, spark_home

CONNECTION = "spark_default"
# Spark tells of each block and jar it touches; the task's log is for what the job itself says, and for errors.
LOGGING = REPO / "spark" / "log4j2.properties"


class SparkApplication(SparkSubmitOperator):  # type: ignore[misc]
    """Runs a script of spark/ by spark-submit; what it prints is the task's log, and its refusal the task's failure.

    `first` names a step that is asked before: where that has done it all, no JVM is started.
    """

    def __init__(self, *, script: str, arguments: Sequence[str], first: str = "", **kwargs: Any) -> None:
        super().__init__(
            application=str(REPO / "spark" / script),
            application_args=list(arguments),
            name=f"tally {Path(script).stem}",
            conn_id=CONNECTION,
            spark_binary=str(spark_home() / "bin" / "spark-submit"),
            **kwargs,
        )
        self.application_args: list[str] | None
        self.first = first

    def execute(self, context: Any) -> None:
        """Submit and wait, unless it is done already. An answer of no is final; all else may be retried."""
        run = settings()
        arguments = [str(argument) for argument in self.application_args or [] if argument]
        chosen = master()
        if self.first and (chosen or run.spark_master).startswith("local") and is_done(self.first, arguments):
            return
        if chosen is None:
            os.environ[f"AIRFLOW_CONN_{CONNECTION.upper()}"] = connection(run)
        os.environ.update(python(), SPARK_HOME=str(spark_home()))
        if run.spark_master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        self.application_args = arguments
        # In a file, not on the command line: thirty --conf would bury the one line that a reader of the log wants.
        self.properties_file = str(properties(run))
        self.log.info("spark/%s %s", Path(str(self.application)).name, " ".join(arguments))
        with awaited() as place:
            try:
                super().execute(context)
            except AirflowException:
                raise_as_said(place.read())
                raise
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"arguments": " ".join(arguments)}


def is_done(step: str, arguments: Sequence[str]) -> bool:
    """Whether a step has done without Spark what the arguments ask for; its refusal is the application's own."""
    try:
        return bool(getattr(import_module("tally.orchestration.steps"), step)(*arguments))
    except TallyError as error:
        raise_as_said(Answer(said=str(error), final=isinstance(error, AnswerIsNo)))
        raise


def raise_as_said(answer: Answer) -> None:
    """Fail as the application itself said, if it said so; its JVM is the parent, and may take it along unheard."""
    if answer.said:
        raise (AirflowFailException if answer.final else AirflowException)(answer.said) from None
    if answer.heap_was_full:
        raise AirflowException(str(memory.full("", memory.BATCH))) from None


def master() -> str | None:
    """The Spark of the connection that somebody made: in Airflow's UI, a secrets backend, the environment; or none."""
    try:
        return str(Connection.get(CONNECTION).host or "")
    except AirflowNotFoundException:
        return None


def connection(run: Settings) -> str:
    """`spark_default` from the settings, for this task alone, so that nobody has to make it by hand."""
    return json.dumps({"conn_type": "spark", "host": run.spark_master})


def properties(run: Settings) -> Path:
    """A Spark properties file with the conf of a batch job, written anew for each task."""
    conf = spark_conf(run, run.spark_memory)
    options = "spark.driver.extraJavaOptions"
    if "log4j2.configurationFile" not in conf.get(options, ""):
        conf[options] = f"{conf.get(options, '')} -Dlog4j2.configurationFile={LOGGING}".strip()
    conf[options] = f"{conf[options]} {HEAP_IS_FULL}".strip()
    text = "".join(f"{name} {value}\n" for name, value in conf.items())
    path = run.home / "run" / "spark-batch.conf"
    write_whole(path, text)
    return path
