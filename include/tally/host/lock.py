"""A kernel lock that a process holds for its life: two holders cannot be, and a dead one holds nothing.

The lock is `flock` on a file that stays; the file says who holds it, and which child of the holder (its JVM) must not
outlive it. Python opens files close-on-exec, so no child keeps the lock. A child that outlived a killed holder is ended
by the next one before it goes on: PySpark's JVM does leave by itself, when the pipe on its stdin breaks, but only after
its shutdown hooks, and until then it could still commit.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.host.process import ended, identity, is_it, left_after, read_json
from tally.host.waiting import until

POLL = 0.1  # seconds between tries for a lock that is waited for; nobody waits for one on a hot path
BLOCK = 4096  # bytes
GRACE = 0.3  # seconds that even a hold without a wait tries on: `is_held` of another process takes the lock for a blink
CHILD_PATIENCE = 10.0  # seconds for a killed child to be gone; the kernel needs a moment for a large heap


class Lock:
    """A held lock; it is let go by `release`, by leaving its `with`, or by the end of the process."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path, self._handle, self._children = path, handle, list[dict[str, Any]]()

    def adopt(self, pid: int) -> None:
        """Name a child, such as the JVM, that whoever holds this lock next must first see ended."""
        self._children.append(identity(psutil.Process(pid)))
        self._write()

    def disown(self) -> None:
        """Name no child any more: what it was to do under this lock is done."""
        self._children.clear()
        self._write()

    def release(self) -> None:
        """Let go; doing so again changes nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _write(self) -> None:
        record = {**identity(psutil.Process()), "children": self._children}
        text = (json.dumps(record) + "\n").encode()
        # Whole blocks, blank at their end, in one write: the size stays, and who reads meanwhile finds a whole record.
        whole = text.ljust(-(-len(text) // BLOCK) * BLOCK)
        os.pwrite(self._handle, whole, 0)
        os.ftruncate(self._handle, len(whole))


def hold(path: Path, *, wait: float = 0.0) -> Lock:
    """Take the lock, waiting up to so many seconds; a TallyError that names the holder when it is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if not until(lambda: _try(handle), seconds=max(wait, GRACE), every=POLL):
        os.close(handle)
        raise TallyError(
            f"{path.stem} is held by {describe(path)}",
            cure=f"wait for that process, or stop it (the lock is {path})",
        )
    lock = Lock(path, handle)
    try:
        _end_children(read_json(path, whole=True))  # who holds the lock alone writes it
        lock._write()
    except BaseException:
        lock.release()  # else this process held it for its life, and nobody could ever let go
        raise
    return lock


def is_held(path: Path) -> bool:
    """Whether a live process holds the lock; asking takes it for no longer than the question."""
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try(handle, shared=True)
    finally:
        os.close(handle)


def holder(path: Path) -> psutil.Process | None:
    """The process that holds the lock; None when it is free, or held by a machine or namespace not ours."""
    return live(read_json(path)) if is_held(path) else None


@contextmanager
def table(*parts: str, jvm: int | None = None, wait: float = 600.0) -> Iterator[Lock]:
    """Be the one writer of a Delta table, e.g. table("archive", "rides"), or wait for the one there is.

    `jvm` is the process that writes it for us. It stays named unless all went well: whether a job that raised is over
    is not known where the connection broke. Once we are gone, the next writer sees it ended first.
    """
    with hold(table_path(*parts), wait=wait) as lock:
        if jvm is not None:
            lock.adopt(jvm)
        yield lock
        lock.disown()


def table_path(*parts: str) -> Path:
    """The lock of a Delta table."""
    return settings().home / "run" / f"table-{'-'.join(parts)}.lock"


def describe(path: Path) -> str:
    record = read_json(path)
    return f"process {record['pid']}" if "pid" in record else "another process"


def live(record: dict[str, Any]) -> psutil.Process | None:
    """The process of an identity, if it still runs."""
    with suppress(KeyError, TypeError, ValueError, psutil.Error):
        process = psutil.Process(int(record["pid"]))
        if is_it(process, record) and not ended(process):
            return process
    return None


def _end_children(record: dict[str, Any]) -> None:
    """Kill what outlived the last holder, and return only when it is gone; one that lives still needs its children."""
    left = [child for child in map(live, record.get("children", [])) if child and not live(record)]
    for child in left:
        with suppress(psutil.Error):
            child.kill()
    if left := left_after(left, CHILD_PATIENCE):
        raise TallyError(f"process {left[0].pid} outlived its driver and does not end", cure=f"kill -9 {left[0].pid}")


def _try(handle: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
