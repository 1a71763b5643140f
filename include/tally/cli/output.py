"""What a command says: one JSON document on stdout with --json, plain text without, and everything else on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tally import foreground
from tally.words import is_text, printable

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
