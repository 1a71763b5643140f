"""Whatever happens beneath a command, a terminal shows Tally's own lines only; the log that they name has the rest."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tally.embedded import broker as embedded

PROGRAM = "from tally.cli import main; main()"
CATALOGUE = {
    "topics.py": """
from tally import topic

trips = topic("trips", schema="id BIGINT, zone INT, fare DOUBLE, at TIMESTAMP", event_time="at", lateness="1 minute")
""",
    "pipelines/spoilt.py": '''
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType
from topics import trips

from tally import pipeline, tumbling


@F.udf(IntegerType())
def spoil(zone):
    """A zone, or an error."""
    if zone == 13:
        raise ValueError("this was planted")
    return zone


@pipeline(reads=trips, window=tumbling("1 minute"), key="zone")
def spoilt(trips):
    """What raises in a Python worker."""
    return trips.withColumn("zone", spoil("zone")).groupBy("window", "zone").agg(F.sum("fare").alias("cost"))
''',
    "pipelines/vast.py": '''
from pyspark.sql import functions as F
from topics import trips

from tally import pipeline, tumbling


@pipeline(reads=trips, window=tumbling("1 minute"), key="zone")
def vast(trips):
    """What fills the heap."""
    size = F.size(F.sequence(F.lit(1), F.col("zone") + 400_000_000))
    return trips.groupBy("window", "zone").agg(F.max(size).alias("size"))
''',
}
RANGE = ("--from", "2026-11-18T10:00:00", "--to", "2026-11-18T10:10:00")
AT = 1_794_996_000_000
FOREIGN = re.compile(
    r"Exception|\bat (org|java|scala)\.|\bWARN\b|ERROR |Traceback|WARNING|Caused by|File \"|^\s+at |py4j|Terminating"
)


@pytest.fixture(scope="module")
def planted(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalogue whose pipelines fail, each in its way, and events for them."""
    folder = tmp_path_factory.mktemp("planted")
    for name, text in CATALOGUE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_CATALOG", str(folder))
        embedded.up()
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True})
    for number in range(40):
        event = {"id": number, "zone": 13, "fare": 1.5, "at": AT + number * 10_000}
        producer.produce("trips", json.dumps(event).encode(), timestamp=AT + number * 10_000)
    producer.flush(30)
    return folder


def seen(
    catalogue: Path, home: Path, *arguments: str, meanwhile: Callable[[psutil.Process], None] | None = None, **more: str
) -> tuple[int, list[str]]:
    """A command's exit code and the lines that a terminal shows of it."""
    ours, theirs = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-W", "default", "-c", PROGRAM, *arguments],
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, start_new_session=True,
        env=os.environ | {"TALLY_CATALOG": str(catalogue), **more},
    )  # fmt: skip
    os.close(theirs)
    shown: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 4096):
                shown.append(piece)
        except OSError:  # the last one who held it has gone
            pass

    reader = threading.Thread(target=read)
    reader.start()
    if meanwhile:
        meanwhile(psutil.Process(child.pid))
    code = child.wait(240)
    reader.join(60)
    os.close(ours)
    return code, b"".join(shown).decode().replace("\r", "").splitlines()


def own(lines: list[str]) -> str:
    """The lines as text, once none of them is somebody else's."""
    assert [line for line in lines if FOREIGN.search(line)] == [], "\n".join(lines)
    assert lines and all(re.match(r"tally: |spoilt: |vast: |not run: |  \S", line) for line in lines), lines
    print(*lines, sep="\n")
    return "\n".join(lines)


def log_named(text: str) -> str:
    found = re.search(r"/\S+/logs/spark-\S+\.log", text)
    assert found, text
    return Path(found[0]).read_text(errors="replace")


def is_worker(process: psutil.Process) -> bool:
    try:
        return "pyspark" in " ".join(process.cmdline())
    except psutil.Error:  # one that is over
        return False


def kill_jvm(command: psutil.Process) -> None:
    """kill -9 the JVM beneath a command, once a query of it runs."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in command.children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                if child.name() == "java" and any(map(is_worker, child.children())):
                    child.send_signal(signal.SIGKILL)
                    return
        time.sleep(0.2)


def test_what_python_raises_in_a_batch(planted: Path, home: Path) -> None:
    code, lines = seen(planted, home, "batch", "spoilt", *RANGE)
    text = own(lines)
    assert code == 1 and "ValueError: this was planted" in text, text
    assert "ValueError: this was planted" in log_named(text)


def test_what_python_raises_in_a_stream(planted: Path, home: Path) -> None:
    code, lines = seen(planted, home, "stream", "spoilt", "--until-caught-up")
    assert code == 1 and "this was planted" in own(lines)


@pytest.mark.long
def test_with_json_a_terminal_has_the_document_and_own_lines(planted: Path, home: Path) -> None:
    code, lines = seen(planted, home, "batch", "spoilt", *RANGE, "--json")
    assert code == 1 and len(lines) == 1
    assert "planted" in json.loads(lines[0])["error"] and not FOREIGN.search(lines[0])


def test_a_jvm_that_is_killed(planted: Path, home: Path) -> None:
    code, lines = seen(planted, home, "stream", "spoilt", meanwhile=kill_jvm)
    assert code == 1 and "its JVM was killed (kill -9)" in own(lines)


@pytest.mark.long
def test_a_heap_that_is_full(planted: Path, home: Path) -> None:
    code, lines = seen(planted, home, "batch", "vast", *RANGE, TALLY_SPARK_MEMORY="512m")
    text = own(lines)
    assert code == 1 and "the JVM's heap of 512m was full" in text
    logs = sorted((home / "logs").glob("spark-batch-*.log"), key=lambda file: file.stat().st_mtime)
    assert "java.lang.OutOfMemoryError" in logs[-1].read_text()
