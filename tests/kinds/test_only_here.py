"""What kind a pipeline is of is asked in one place: everything else asks the kind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tally.base.settings import REPO

TALLY = REPO / "include" / "tally"
# Where windows are declared, and where a pipeline gets its kind.
MAY_ASK = {"catalog/spec.py", "catalog/declare.py"}
WINDOWS, KINDS = r"(?:Tumbling|Hopping|Session|Events)\b", r"(?:Windowed|Sessions|Join|Events)\b"
ASKS = re.compile(
    rf"""
    \bwindow\.kind\b | \bwindow\.word\s*(?:==|!=|in\b) | \bby_key\b       # the declared window
    | \bis_(?:session|join|windowed|hopping|tumbling)\b
    | \blen\(\s*[\w.]*\breads\b                                           # how many topics
    | \bisinstance\([^\n]*\b(?:{WINDOWS}|{KINDS})
    | from\ tally\.catalog\.spec\ import\ (?:\([^)]*|[^\n]*)\b{WINDOWS}
    | from\ tally\.kinds\ import\ (?:\([^)]*|[^\n]*)\b(?:{KINDS}|windowed\b|session\b|join\b|events\b)
    | tally\.kinds\.(?:windowed|session|join|events)\b
    """,
    re.X,
)


def asked(file: str, text: str) -> list[str]:
    """Where a module outside of kinds/ asks which kind a pipeline is of."""
    if file in MAY_ASK or file.startswith("kinds/"):
        return []
    return [f"{file}:{text[: found.start()].count(chr(10)) + 1}: {found[0]}" for found in ASKS.finditer(text)]


def test_no_other_module_asks_which_kind_a_pipeline_is_of() -> None:
    modules = sorted(TALLY.rglob("*.py"))
    assert len(modules) > 100
    found = [line for file in modules for line in asked(str(file.relative_to(TALLY)), file.read_text())]
    assert not found, "\n".join(["ask kind_of(pipeline) what it means for it:", *found])


@pytest.mark.parametrize(
    "planted",
    [
        'if pipeline.window.kind == "session":',
        'rule = "event" if window.word == "hopping" else "window"',
        "if cut.pipeline.window.by_key:",
        "if replay.is_session(cut):",
        "single = len(cut.pipeline.reads) == 1",
        "if len(pipeline.reads) > 1:",
        "if isinstance(pipeline.window, Session):",
        "if isinstance(kind_of(pipeline), Sessions):",
        "from tally.catalog.spec import Hopping, Pipeline",
        "from tally.catalog.spec import (\n    Pipeline,\n    Session,\n)",
        "from tally.kinds import Join, kind_of",
        "from tally.kinds.session import Sessions",
        "from tally.kinds.events import Events",
    ],
)
def test_a_line_that_asks_is_found(planted: str) -> None:
    file = "reconcile/replay/expected_rows.py"
    text = Path(TALLY, file).read_text()
    (found,) = {line.split(":")[1] for line in asked(file, f"{text}\n{planted}\n")}
    assert int(found) > text.count("\n")
    assert not asked("kinds/session.py", planted)


@pytest.mark.parametrize(
    "innocent",
    [
        "from pyspark.sql import SparkSession",
        "from tally.catalog.spec import Pipeline, Topic, Window",
        "from tally.kinds import fates, kind_of",
        "from tally.kinds.kind import History",
        "for topic in pipeline.reads:",
        'schedule.kind == "cron"',
    ],
)
def test_a_line_that_asks_for_nothing_is_left_be(innocent: str) -> None:
    assert not asked("reconcile/replay/expected_rows.py", innocent)
