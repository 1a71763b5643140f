"""Says whether a JVM ended for want of memory, and which setting gives it more.

A JVM of Tally ends at once when its heap is full (session.JAVA_OPTIONS), and all that is left of it is an exit code, or
one line in a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.host import foreground
from tally.lake import session

STREAM, BATCH = "TALLY_STREAM_MEMORY", "TALLY_SPARK_MEMORY"
OUT = "out of memory"
KILLED = "was killed"
# Exit codes of a JVM: the option's own, and Spark's where it sees the error first; that of kill -9, and of the kernel.
FULL_CODES, KILLED_CODE = (3, 52), -9
# Seconds for a JVM that no longer answers to be gone: it gives back gigabytes first. One that lives is waited for in
# vain, once, before an error is told.
GONE_PATIENCE = 5.0
FULL = re.compile(r"java\.lang\.OutOfMemoryError(?:: (?P<what>[^\n]+))?")
NO_WORDS = re.compile(r"\s*(cure: |at |\.\.\. \d+ more|WARNING: Using incubator)")  # a JVM's greeting, and its stack
# What Spark's JVM itself logs, with the exception below it: as its driver is killed, of tasks that lose their files.
SPARKS = re.compile(r"\s*(\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ |Caused by: |(java|javax|scala|org\.apache)\.[\w.$]+)")
TOO_SMALL = re.compile(r"System memory (?P<there>\d+) must be at least (?P<least>\d+)")
CURES = {
    STREAM: (
        f"give the driver a larger heap: set {STREAM} (default 1536m) where Airflow runs, and restart Airflow; the "
        "planned micro-batch is then replayed. TALLY_MAX_OFFSETS_PER_TRIGGER, set lower, makes later ones smaller. "
        "docs/runbook.md, Out of memory"
    ),
    BATCH: (
        f"give batch jobs a larger heap: set {BATCH} (default 1g) where the job runs, and run it again; "
        "TALLY_MAX_OFFSETS_PER_INGEST, set lower, makes each archive commit smaller. docs/runbook.md, Out of memory"
    ),
}
IF_KILLED = (
    "if nobody killed it, the kernel did, for the machine was full: `dmesg | grep -i 'killed process'` says so; "
    "then give the machine more memory, or run less on it"
)


class JvmEnded(TallyError):
    """The JVM that all of this process's Spark is in has gone."""

    exit_code = 1


def heap(setting: str) -> str:
    return settings().stream_memory if setting == STREAM else settings().spark_memory


def full(text: str, setting: str) -> JvmEnded:
    """A heap that was full, with what the JVM said of it where it did."""
    met = FULL.search(text)
    what = f" ({met['what']})" if met and met["what"] else ""
    return JvmEnded(f"{OUT}: the JVM's heap of {heap(setting)} was full{what}", field=setting, cure=CURES[setting])


def behind(error: BaseException | None, setting: str) -> TallyError | None:
    """The want of memory, or the kill, behind an error: by how the JVM ended, else by what Spark says."""
    text, code = "" if error is None else str(error), session.exit_code(GONE_PATIENCE if unanswered(error) else 0.0)
    if met := TOO_SMALL.search(text):
        there, least = int(met["there"]) >> 20, int(met["least"]) >> 20
        words = (
            f"{OUT}: of a heap of {heap(setting)} Spark can use {there} MiB, and {least} are the least it starts with"
        )
        return TallyError(words, field=setting, cure=CURES[setting])
    if code in FULL_CODES or FULL.search(text):
        return full(text, setting)
    if code == KILLED_CODE:
        return JvmEnded(f"its JVM {KILLED} (kill -9)", cure=IF_KILLED)
    if code is not None:
        log = foreground.log() or "the lines above in this log"
        return JvmEnded(f"its JVM ended by itself, with exit code {code}", cure=f"look at {log}")
    return None


def unanswered(error: BaseException | None) -> bool:
    """Whether the JVM did not answer at all, rather than with an error of its own."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    return isinstance(error, (Py4JError, OSError)) and not isinstance(error, Py4JJavaError)


@contextmanager
def told(setting: str) -> Iterator[None]:
    """Have what Spark raises for want of memory, or once its JVM has gone, say so."""
    try:
        yield
    except Exception as error:
        found = None if isinstance(error, TallyError) else behind(error, setting)
        if found is None:
            raise
        raise found from error


def last_words(lines: list[str]) -> str:
    """What a process died of, by its log: want of memory if a line tells of it, else its own last line."""
    said = [line.strip() for line in lines if line.strip() and not NO_WORDS.match(line)]
    for line in reversed(said):
        if OUT in line or KILLED in line:
            return line
    if any(FULL.search(line) for line in said):
        return str(full("\n".join(said), STREAM)).splitlines()[0]
    own = [line for line in said if not SPARKS.match(line)]
    return own[-1] if own else ""


def cure(words: str, setting: str = STREAM) -> str:
    """What helps against last words that tell of memory; "" for others."""
    if KILLED in words:
        return IF_KILLED
    return CURES[setting] if OUT in words else ""
