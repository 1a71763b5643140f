"""Small catalogues written into a folder, to load and to break."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tally.base.settings import REPO

PAGE = REPO / "docs" / "write_a_pipeline.md"
BLOCK = re.compile(r"^`(?P<path>spark/pipelines/\w+\.py)`\n+```python\n(?P<text>.*?)^```$", re.M | re.S)

TOPICS = """
from tally import topic

rides = topic("rides", schema="id BIGINT, zone INT, fare DOUBLE, at TIMESTAMP", event_time="at", lateness="{lateness}")
"""
PIPELINE = '''
from pyspark.sql import functions as F
from topics import rides

from tally import hopping, pipeline, session, tumbling

RATE = {rate}


def taxed(column):
    """What a ride costs."""
    return F.col(column) * RATE


@pipeline(reads=rides, window={window}, key="zone")
def demand(rides):
    """Demand."""
    return {body}
'''
BODY = 'rides.groupBy("window", "zone").agg(F.sum(taxed("fare")).alias("cost"))'


def write(
    folder: Path,
    *,
    lateness: str = "1 minute",
    rate: str = "2",
    window: str = 'tumbling("1 minute")',
    body: str = BODY,
) -> Path:
    """A catalogue of one pipeline; its folder."""
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "topics.py").write_text(TOPICS.format(lateness=lateness))
    (folder / "pipelines" / "demand.py").write_text(PIPELINE.format(rate=rate, window=window, body=body))
    return folder


def edit(folder: Path, old: str, new: str, *, file: str = "pipelines/demand.py") -> None:
    """Replace text that must be there, in one file of a catalogue."""
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def line_of(folder: Path, text: str, *, file: str = "pipelines/demand.py") -> str:
    """file:line of the first line with a text, as an error names it."""
    lines = (folder / file).read_text().splitlines()
    return f"{folder / file}:{next(at for at, line in enumerate(lines, 1) if text in line)}"


def with_the_pipeline_of_the_page(folder: Path) -> Path:
    """The demo's catalogue, copied, and to it only the file of docs/write_a_pipeline.md added; that file's path."""
    (found,) = BLOCK.finditer(PAGE.read_text())
    shutil.copytree(REPO / "spark", folder / "spark", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / str(found["path"])
    assert not file.exists()
    file.write_text(found["text"])
    return file
