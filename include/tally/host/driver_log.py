"""A stream driver's own lines in its log: when, how grave, and what; as text, or as JSON for whoever collects logs.

What a JVM writes into the same file is not among them: spark/log4j2.properties stamps it, and names its level.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from tally.base.lines import lines_of
from tally.base.settings import settings

# The logger that all modules of a driver are below.
DRIVER = "tally.speed"
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (?:INFO|WARNING|ERROR|CRITICAL) (?P<said>.*)")


class Text(logging.Formatter):
    """`2026-11-19T10:00:00.000Z WARNING trips: …`; what follows in further lines is indented already."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{moment(record)} {record.levelname} {super().format(record)}"


class Json(logging.Formatter):
    """One document a line: `at`, `level`, `logger`, `message`, and `pipeline` where it is of one."""

    def format(self, record: logging.LogRecord) -> str:
        document = {"at": moment(record), "level": record.levelname.lower(), "logger": record.name}
        if pipeline := getattr(record, "pipeline", ""):
            document["pipeline"] = pipeline
        return json.dumps({**document, "message": super().format(record)}, ensure_ascii=False)


class Lines(logging.Handler):
    """Writes each line to what is stdout at that moment, at once: the next one may never be written."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), flush=True)


def begin(name: str = DRIVER) -> None:
    """Have a logger's lines stamped, on stdout, unless they are shown in another way already."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        lines = Lines()
        lines.setFormatter(Json() if settings().log_format == "json" else Text())
        take(logger, lines)


def take(logger: logging.Logger, lines: logging.Handler) -> None:
    """Have a handler, and no other one, show what a logger is told."""
    logger.addHandler(lines)
    logger.setLevel(logging.INFO if logger.name == DRIVER else logging.WARNING)
    logger.propagate = False


def moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def messages(lines: Iterable[str]) -> list[str]:
    """What lines of a log say, without their stamps; lines of others as they are."""
    return [said for line in lines for said in lines_of(message(line))]


def message(line: str) -> str:
    if met := STAMPED.fullmatch(line):
        return met["said"]
    if line.startswith('{"at": '):
        try:
            return str(json.loads(line)["message"])
        except (ValueError, KeyError):  # a line that a killed driver did not end
            return line
    return line
