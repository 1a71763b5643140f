"""How a command fails: one message with its cure on stderr, or one JSON document on stdout, and an exit code."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import typer

from tally import foreground
from tally.cli.output import note, print_document
from tally.errors import TallyError

# The line that ends a traceback of Python's: the error's class, and what it says.
RAISED = re.compile(r"[A-Za-z_][\w.]*: \S")


def refused(error: TallyError, as_json: bool) -> int:
    """A TallyError: its own words and its own exit code."""
    if as_json:
        print_document(error.as_dict())
    else:
        note(f"tally: {error}")
    return error.exit_code


def misused(error: typer.TyperException, as_json: bool) -> int:
    """A command line that typer does not accept."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "tally"
    return refused(TallyError(error.format_message(), cure=f"{path} --help"), as_json)


def unexpected(error: Exception, arguments: Sequence[str], as_json: bool) -> int:
    """Anything else: bad settings by name, or one line and the path of a file that holds the traceback."""
    if type(error).__name__ == "ValidationError" and hasattr(error, "errors"):
        return refused(_bad_settings(error), as_json)
    if isinstance(error, OSError) and error.filename and Path(os.fsdecode(error.filename)).is_relative_to(_home()):
        told = TallyError(
            f"{error.strerror}: {os.fsdecode(error.filename)}",
            field="TALLY_HOME",
            cure="make it a folder that this user can write, with room on its disk",
        )
        return refused(told, as_json)
    where = f"the traceback is in {_write_traceback(error, arguments)}"
    if log := foreground.log():
        where = f"what Spark said is in {log}; {where}"
    refused(TallyError(f"unexpected {_what(error)}", cure=where), as_json)
    return 1


def _what(error: Exception) -> str:
    """The error in a line: of what Python raised for Spark, its own last words."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        raised = [line for line in lines if RAISED.match(line)]
        return raised[-1] if raised else "error in a Python worker"
    name = type(error).__name__
    return f"{name}: {lines[0].strip()}" if lines else name


def _bad_settings(error: Exception) -> TallyError:
    faults = error.errors()  # type: ignore[attr-defined]
    names = ", ".join("TALLY_" + "_".join(map(str, fault["loc"])).upper() for fault in faults)
    words = "; ".join(f"{fault['msg'].removeprefix('Value error, ')}, got {fault.get('input')!r}" for fault in faults)
    return TallyError(words, field=names, cure="correct it in the environment, or unset it for the default")


def _write_traceback(error: Exception, arguments: Sequence[str]) -> Path:
    name = f"error-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}.log"
    text = f"tally {' '.join(arguments)}\n\n{''.join(traceback.format_exception(error))}\n{foreground.unsaid()}"
    for folder in (_home() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
            return folder / name
        except OSError:
            continue
    return Path(os.devnull)


def _home() -> Path:
    """The home by the environment alone: the settings themselves may be what failed."""
    from tally.settings import REPO

    return Path(os.environ.get("TALLY_HOME") or REPO / "var").expanduser().absolute()
