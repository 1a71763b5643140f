"""A Spark application of Tally as a task: the provider's SparkSubmitOperator, with this installation's Spark."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from tally.base.settings import REPO, Settings, settings
from tally.host.process import write_whole
from tally.lake import memory
from tally.lake.session import spark_conf, spark_home

CONNECTION = "spark_default"
# Spark tells of each block and jar it touches; the task's log is for what the job itself says, and for errors.
LOGGING = REPO / "spark" / "log4j2.properties"
NO = 1  # the exit code of an entry point whose answer is no


class SparkApplication(SparkSubmitOperator):  # type: ignore[misc]
    """Runs a script of spark/ by spark-submit; what it prints is the task's log, and its refusal the task's failure."""

    def __init__(self, *, script: str, arguments: Sequence[str], **kwargs: Any) -> None:
        super().__init__(
            application=str(REPO / "spark" / script),
            application_args=list(arguments),
            name=f"tally {Path(script).stem}",
            conn_id=CONNECTION,
            spark_binary=str(spark_home() / "bin" / "spark-submit"),
            **kwargs,
        )
        self.application_args: list[str] | None

    def execute(self, context: Any) -> None:
        """Submit and wait. An answer of no (exit code 1 and a refusal) is final; all else may be retried."""
        run = settings()
        os.environ.setdefault(f"AIRFLOW_CONN_{CONNECTION.upper()}", connection(run))
        os.environ.update(
            SPARK_HOME=str(spark_home()), PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable
        )
        if run.spark_master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        arguments = [str(argument) for argument in self.application_args or [] if argument]
        self.application_args = arguments
        # In a file, not on the command line: thirty --conf would bury the one line that a reader of the log wants.
        self.properties_file = str(properties(run))
        self.log.info("spark/%s %s", Path(str(self.application)).name, " ".join(arguments))
        try:
            super().execute(context)
        except AirflowException as error:
            said = self.last_words()
            if not said:
                raise
            final = f"Error code is: {NO}." in str(error)
            raise (AirflowFailException if final else AirflowException)(said) from None
        for asset in self.outlets:
            context["outlet_events"][asset].extra = {"arguments": " ".join(arguments)}

    def last_words(self) -> str:
        """What the application itself said it failed of, if it said so."""
        lines = list(getattr(self._hook, "_last_submit_log_lines", ()))
        cures = [at for at, line in enumerate(lines) if at and line.startswith("cure: ")]
        if cures:
            return "\n  ".join(lines[cures[-1] - 1 : cures[-1] + 1])
        text = "\n".join(lines)  # the JVM is the parent here: one whose heap is full takes the application with it
        return str(memory.full(text, memory.BATCH)) if memory.FULL.search(text) else ""


def connection(run: Settings) -> str:
    """`spark_default` from the settings, so that nobody makes it by hand; one that is configured wins."""
    return json.dumps({"conn_type": "spark", "host": run.spark_master})


def properties(run: Settings) -> Path:
    """A Spark properties file with the conf of a batch job, written anew for each task."""
    conf = spark_conf(run, run.spark_memory)
    options = "spark.driver.extraJavaOptions"
    if "log4j2.configurationFile" not in conf.get(options, ""):
        conf[options] = f"{conf.get(options, '')} -Dlog4j2.configurationFile={LOGGING}".strip()
    text = "".join(f"{name} {value}\n" for name, value in conf.items())
    path = run.home / "run" / "spark-batch.conf"
    write_whole(path, text)
    return path
