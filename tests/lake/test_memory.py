"""A JVM whose heap is full ends at once, and whoever used it says so, with the setting that helps."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tally.base.errors import TallyError
from tally.lake import memory, session

LOG = """\
WARNING: Using incubator modules: jdk.incubator.vector
Terminating due to java.lang.OutOfMemoryError: Java heap space
Traceback (most recent call last):
py4j.protocol.Py4JNetworkError: Answer from Java side is empty
""".splitlines()
FILL = """
from tally.lake import memory
from tally.lake.session import session

@memory.told(memory.BATCH)
def fill():
    spark = session("full", memory="512m")
    print("started", flush=True)
    spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.byte, 1_500_000_000)

fill()
"""


def test_a_full_heap_ends_the_jvm_and_the_application_says_why() -> None:
    environment = {**os.environ, "TALLY_SPARK_MEMORY": "512m"}
    done = subprocess.run(
        [sys.executable, "-c", FILL], capture_output=True, text=True, timeout=400, check=False, env=environment
    )
    assert "started" in done.stdout
    assert "Terminating due to java.lang.OutOfMemoryError" in done.stdout
    assert "TALLY_SPARK_MEMORY: out of memory: the JVM's heap of 512m was full" in done.stderr
    assert "cure: give batch jobs a larger heap" in done.stderr


def test_a_heap_below_sparks_limit_is_told_with_the_limit() -> None:
    environment = {**os.environ, "TALLY_SPARK_MEMORY": "200m"}
    code = FILL.replace("512m", "200m")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=400, check=False, env=environment
    )
    assert "out of memory: of a heap of 200m Spark can use" in done.stderr


@pytest.mark.parametrize(
    ("code", "said", "due"),
    [
        (3, "Answer from Java side is empty", "out of memory: the JVM's heap of 1g was full"),
        (None, "Caused by: java.lang.OutOfMemoryError: Metaspace\n at x", "was full (Metaspace)"),
        (52, "", "out of memory: the JVM's heap of 1g was full"),
        (-9, "Answer from Java side is empty", "its JVM was killed (kill -9)"),
        (1, "Answer from Java side is empty", "its JVM ended by itself, with exit code 1"),
    ],
)
def test_what_is_behind_an_error(monkeypatch: pytest.MonkeyPatch, code: int | None, said: str, due: str) -> None:
    monkeypatch.delenv("TALLY_SPARK_MEMORY", raising=False)
    monkeypatch.setattr(session, "exit_code", lambda *_: code)
    found = memory.behind(RuntimeError(said), memory.BATCH)
    assert found is not None and due in str(found) and found.cure


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "exit_code", lambda *_: None)
    with pytest.raises(ZeroDivisionError), memory.told(memory.BATCH):
        raise ZeroDivisionError
    monkeypatch.setattr(session, "exit_code", lambda *_: 3)
    with pytest.raises(TallyError, match="no such pipeline"), memory.told(memory.BATCH):
        raise TallyError("no such pipeline")


@pytest.mark.parametrize(
    ("lines", "words", "cure"),
    [
        (LOG, "TALLY_STREAM_MEMORY: out of memory: the JVM's heap of 1g was full (Java heap space)", "larger heap"),
        ([*LOG, "out of memory: its own words", "  cure: more"], "out of memory: its own words", "larger heap"),
        (["its JVM was killed (kill -9)", "  cure: look"], "its JVM was killed (kill -9)", "dmesg"),
        (["trips: no checkpoint", "  cure: put it back"], "trips: no checkpoint", ""),
        (["trips: no disk", "\tat org.apache.spark.Run", "\t... 34 more"], "trips: no disk", ""),
        (["WARNING: Using incubator modules: jdk.incubator.vector"], "", ""),
        (
            [
                "26/11/19 07:33:17 ERROR Executor: Exception in task 3.0 in stage 25.0 (TID 66): no such file",
                "java.io.FileNotFoundException: /tmp/blockmgr/17/shuffle_16_66_0.index (No such file or directory)",
                "\tat java.base/java.io.FileOutputStream.open0(Native Method)",
                "Caused by: org.apache.spark.SparkException: Job aborted",
            ],
            "",
            "",
        ),
        (
            ["TALLY_HOME: no such folder", "26/11/19 07:33:17 ERROR Utils: Aborting task"],
            "TALLY_HOME: no such folder",
            "",
        ),
    ],
)
def test_last_words_of_a_driver_name_memory_and_its_cure(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], words: str, cure: str
) -> None:
    monkeypatch.setenv("TALLY_STREAM_MEMORY", "1g")
    assert memory.last_words(lines) == words
    assert cure in memory.cure(words) and bool(cure) == bool(memory.cure(words))
