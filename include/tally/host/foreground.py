"""A terminal shows nothing but Tally's own lines; what runs beneath a command writes to a log of its home.

File descriptors 1 and 2 are what a JVM, its Python workers, a library's warning or a dying thread writes to, and each
child inherits them. `take` puts a file in their place; Tally's lines go to where they led before.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TextIO

KEPT = 20  # logs of commands that are over: enough to find yesterday's, too few to fill a disk


@dataclass(kw_only=True)
class Taken:
    """The command's own way to the terminal, and where all else goes: to a file without a name, until Spark starts."""

    verb: str
    out: int
    err: TextIO
    aside: IO[bytes]
    log: Path | None = None


_taken: Taken | None = None


def take(verb: str) -> None:
    """From here on only sys.stdout and `stderr()` lead to the terminal; once for a process, before it has threads."""
    global _taken
    sys.stdout.flush()
    sys.stderr.flush()
    out, err, aside = os.dup(1), os.dup(2), tempfile.TemporaryFile()  # noqa: SIM115
    mine = fdopened(out, sys.stdout, 1 if os.isatty(out) else -1)
    _taken = Taken(verb=verb, out=out, err=fdopened(err, sys.stderr, 1), aside=aside)
    led_to(aside.fileno())
    sys.stdout, sys.excepthook = mine, last_resort


def fdopened(descriptor: int, like: TextIO, buffering: int) -> TextIO:
    return os.fdopen(descriptor, "w", buffering, encoding=like.encoding, errors=like.errors)


def last_resort(kind: type[BaseException], error: BaseException, _: object) -> None:
    """Say what not even the command line's own handling of failures took care of."""
    print(f"tally: {kind.__name__}: {error}", file=stderr())


def stderr() -> TextIO:
    """Where a command's own words to a person go that are no result."""
    return _taken.err if _taken else sys.stderr


def descriptors() -> tuple[int, int]:
    """Where the command's own stdout and stderr lead."""
    return (_taken.out, _taken.err.fileno()) if _taken else (1, 2)


def log_in(home: Path) -> Path | None:
    """Have all that is not Tally's own line in a log of the home, what was said so far too; None: in no command."""
    if _taken is None or _taken.log is not None:
        return None if _taken is None else _taken.log
    log = home / "logs" / f"spark-{_taken.verb}-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    prune(log.parent)
    with log.open("ab") as file:
        _taken.aside.seek(0)
        shutil.copyfileobj(_taken.aside, file)
        file.flush()
        led_to(file.fileno())
    _taken.log = log
    return log


def log() -> Path | None:
    """The log that holds what Spark said, where this command has started it."""
    return _taken.log if _taken else None


def unsaid() -> str:
    """What was written while there was no log."""
    if _taken is None or _taken.log is not None:
        return ""
    _taken.aside.seek(0)
    return _taken.aside.read().decode(errors="replace")


def led_to(file: int) -> None:
    """Let this process's descriptors 1 and 2, and those of its children, lead to a file."""
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)


def prune(folder: Path) -> None:
    """Remove the oldest logs of commands that are over."""
    over = [file for file in folder.glob("spark-*-*.log") if not lives(file.stem.rpartition("-")[2])]
    with suppress(OSError):  # another command prunes too
        for file in sorted(over, key=lambda one: one.stat().st_mtime)[: -KEPT + 1]:
            file.unlink(missing_ok=True)


def lives(pid: str) -> bool:
    """Whether a process of that number lives, somebody else's included."""
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (ValueError, OSError):
        return False
    return True
