"""A full disk below the tables, the checkpoints or the control store, then room again."""

from __future__ import annotations

import os
import time
from pathlib import Path

from faults.run import Run, quiet
from faults.stack import until

FULL_SECONDS = 20.0
BLOCK = 1 << 16


def full(run: Run) -> None:
    """Fill each small file system that the stack has, see the stream fail on it, and free it again."""
    while run.left() > 60:
        for where in run.stack.mounts:
            fill_and_free(run, where)
            if run.left() < 60:
                return


def fill_and_free(run: Run, where: Path) -> None:
    """The stream must have stood still while the disk was full, and move when it no longer is."""
    before = quiet(run.newest)
    fill(where / "filler")
    time.sleep(FULL_SECONDS)
    stood = until(lambda: (now := quiet(run.newest)) is None or now == before, 0.1) or stands(run)
    (where / "filler").unlink()
    since = time.monotonic()
    if not stood:
        run.result.notes.append(f"the stream went on although {where.name} was full")
    run.heals(f"disk full: {where.name}", since)
    run.one_writer()


def stands(run: Run) -> bool:
    first = quiet(run.newest)
    time.sleep(3)
    return bool(quiet(run.newest) == first)


def fill(file: Path) -> None:
    """Write until nothing more goes in, to the last byte."""
    with file.open("wb", buffering=0) as out:
        for size in (BLOCK, 512, 1):
            try:
                while out.write(os.urandom(1) * size):
                    pass
            except OSError:
                continue
