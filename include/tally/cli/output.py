"""What a command says: one JSON document on stdout with --json, plain text without, and everything else on stderr.

What went wrong is one message with its cure on stderr, or one document on stdout, and an exit code; never a traceback.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tally.base.errors import TallyError
from tally.base.safe_text import is_text, printable
from tally.host import foreground

# Characters of a line on stderr: a wrong argument of megabytes must not bury what is wrong with it.
LONGEST = 2000

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else on stdout.")]

_stdout: int | None = None


def keep_stdout_for_the_document() -> None:
    """From here on what this process writes to stdout goes to stderr; the document does not."""
    global _stdout
    sys.stdout.flush()
    out, err = foreground.descriptors()
    _stdout = os.dup(out)
    os.dup2(err, out)


def show(document: Any, as_json: bool, otherwise: Callable[[], None]) -> None:
    """Print the document with --json, and call `otherwise`, which prints for a person, without."""
    if as_json:
        print_document(document)
    else:
        otherwise()


def print_document(document: Any) -> None:
    """The one JSON document of this command; datetimes in ISO 8601, paths as text."""
    text = json.dumps(document, default=_plain, ensure_ascii=False) + "\n"
    if not is_text(text):  # the bytes of a file's name, which UTF-8 has no place for, and a JSON escape has
        text = json.dumps(document, default=_plain) + "\n"
    if _stdout is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with os.fdopen(os.dup(_stdout), "w", encoding="utf-8") as out:
        out.write(text)


def say(text: str) -> None:
    """A line or more to the person who asked, on stdout."""
    typer.echo(printable(text, keep="\n\t"))


def note(message: str) -> None:
    """A word to the person at the terminal, never on stdout."""
    lines = (line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line):,})" for line in message.split("\n"))
    typer.echo(printable("\n".join(lines), keep="\n\t"), file=foreground.stderr())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if hasattr(value, "item"):  # numpy's scalars
        return value.item()
    return str(value)


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
    from tally.base.settings import REPO

    return Path(os.environ.get("TALLY_HOME") or REPO / "var").expanduser().absolute()
