"""What a Spark application of a task died of is the task's failure, in its own words where it had some."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tally.orchestration.application import SparkApplication

REFUSED = ["WARNING", "trips: no such pipeline", "cure: tally check"]
FULL = ["26/11/19 WARN", "Terminating due to java.lang.OutOfMemoryError: Java heap space", "py4j: answer is empty"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (REFUSED, ["trips: no such pipeline\n  cure: tally check"]),
        (FULL, ["out of memory: the JVM's heap of 1g was full (Java heap space)", "TALLY_SPARK_MEMORY", "cure: "]),
        (["26/11/19 WARN"], []),
    ],
)
def test_its_last_words(monkeypatch: pytest.MonkeyPatch, lines: list[str], words: list[str]) -> None:
    monkeypatch.delenv("TALLY_SPARK_MEMORY", raising=False)
    task = SparkApplication(script="batch.py", arguments=[], task_id="batch")
    task._hook = SimpleNamespace(_last_submit_log_lines=lines)
    said = task.last_words()
    assert all(word in said for word in words) and bool(said) == bool(words)
