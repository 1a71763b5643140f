"""A detached process can be found again, and ended with all its children, by a pid file that outlives who started it.

A pid file is JSON with a process's identity, and all of it must fit: a reused pid is never taken for ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tally.base.lines import lines_of
from tally.host.waiting import until

# Where no more is known than when a process was created by the wall clock: the seconds by which a step of the clock may
# move that before a live process is taken for a stranger. Pids come round only after minutes.
CLOCK_STEP = 5.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
START = 19  # of /proc/PID/stat, counted from the field after the name: when it began, in ticks since the machine did

# Seconds for children whose parent is gone already: they have nothing left to hand over, and a person is waiting.
CHILD_PATIENCE = 5.0


def write_whole(path: Path, text: str) -> None:
    """Replace the file in one step: a reader sees the old text or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace the file in one step by a document."""
    write_whole(path, json.dumps(document) + "\n")


# Seconds before a document that cannot be read is read again: a reader may meet half of what is just being written.
AGAIN = (0.001, 0.01, 0.05)


def read_json(path: Path, *, whole: bool = False) -> dict[str, Any]:
    """The document, or {} where there is none that can be read, nor a moment later, unless it is surely `whole`."""
    for pause in (None,) if whole else (*AGAIN, None):
        try:
            document = json.loads(path.read_text())
            return document if isinstance(document, dict) else {}
        except OSError:
            return {}
        except ValueError:
            if pause is not None:
                time.sleep(pause)
    return {}


def identity(process: psutil.Process) -> dict[str, Any]:
    """What tells a process from a later one of the same pid, whatever becomes of the wall clock."""
    known: dict[str, Any] = {"pid": process.pid, "created": process.create_time()}
    with suppress(OSError, IndexError, ValueError):
        known |= {"boot": BOOT.read_text().strip(), "ticks": _ticks(process.pid)}
    return known


def since_boot(process: psutil.Process) -> float:
    """When it began, by a count that no clock moves where there is one: it tells a reused pid of one `place`."""
    with suppress(FileNotFoundError, ProcessLookupError, IndexError, ValueError):
        return float(_ticks(process.pid))
    return float(process.create_time())


def place() -> str:
    """Where a pid means one process: a start of a machine, and in it a container or none. Names of hosts come again."""
    try:
        return f"{BOOT.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return str(int(psutil.boot_time()))


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[START])


def is_it(process: psutil.Process, record: Mapping[str, Any]) -> bool:
    """Whether a process is the one of an identity; whoever wrote it may have known no more than `created`."""
    now = identity(process)
    if "boot" in record and "boot" in now:
        return bool(record["boot"] == now["boot"] and record["ticks"] == now["ticks"])
    return abs(float(now["created"]) - float(record["created"])) < CLOCK_STEP


def start(command: Sequence[str], log: Path, pidfile: Path, **facts: Any) -> psutil.Process:
    """Start in a session of its own, output appended to the log, and write the pid file with these facts beside it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    process = psutil.Process(child.pid)
    write_json(pidfile, {**identity(process), **facts})
    child.returncode = 0  # it outlives us: nobody waits for it, and Popen must not warn about that
    return process


def find(pidfile: Path) -> psutil.Process | None:
    """The live process of a pid file; None when it has ended, was never written, or the pid is somebody else's."""
    record = read_json(pidfile)
    try:
        process = psutil.Process(int(record["pid"]))
        if is_it(process, record) and not ended(process):
            return process
    except (KeyError, TypeError, ValueError, psutil.Error):
        pass
    return None


def ended(process: psutil.Process) -> bool:
    """Whether it no longer runs, its ports and locks with it; a child of ours that has ended is reaped by asking.

    A JVM just killed is a zombie for a moment while other threads of it still hold its ports: that is not ended.
    """
    try:
        if process.status() != psutil.STATUS_ZOMBIE:
            return not process.is_running()
        try:
            return os.waitpid(process.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return process.num_threads() <= 1
    except psutil.Error:
        return True


def left_after(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those still running after at most so many seconds."""
    until(lambda: all(map(ended, processes)), seconds=seconds, every=0.02)
    return [process for process in processes if not ended(process)]


def stop(pidfile: Path, patience: float = 30.0) -> bool:
    """End the process of a pid file and all its session: SIGTERM, up to `patience` seconds, then SIGKILL.

    True when something was running. Works too when the process itself is gone and only children of it are left.
    The pid file is removed last, so an interrupted stop can be repeated.
    """
    process = find(pidfile)
    others = [*session_of(pidfile), *(_children(process) if process else [])]
    left = [process] if process else []
    was_running = bool(left or others)
    for group, seconds in ((left, patience), (others, CHILD_PATIENCE)):
        _signal(group, psutil.Process.terminate)
        left_after(group, seconds)
    left = left_after([*left, *others], 0)
    _signal(left, psutil.Process.kill)
    left_after(left, CHILD_PATIENCE)
    pidfile.unlink(missing_ok=True)
    return was_running


def session_of(pidfile: Path) -> list[psutil.Process]:
    """Processes of the session that a pid file's process led, the leader aside, alive even when it is not."""
    record = read_json(pidfile)
    try:
        leader, created = int(record["pid"]), float(record["created"])
    except (KeyError, TypeError, ValueError):
        return []
    stranger = psutil.pid_exists(leader) and find(pidfile) is None and not _is_zombie(leader)
    if stranger or not _this_boot(record.get("boot"), created):
        return []  # the pid, and with it the session's number, is somebody else's by now
    members = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if process.pid != leader and os.getsid(process.pid) == leader and not ended(process):
                members.append(process)
    return members


def _this_boot(boot: str | None, created: float) -> bool:
    """Whether a process of an identity began since the machine did."""
    with suppress(OSError):
        if boot is not None:
            return boot == BOOT.read_text().strip()
    return created >= psutil.boot_time() - CLOCK_STEP


# Bytes of a log's end that are looked at: some hundred lines of a stack trace.
TAIL = 64_000


def tail(log: Path, lines: int = 12, since: int = 0) -> str:
    """The last lines of a log, whole ones, of what was written past byte `since`."""
    try:
        with log.open("rb") as file:
            begins = max(since, log.stat().st_size - TAIL)
            file.seek(begins)
            read = lines_of(file.read().decode(errors="replace"))
            return "\n".join(read[1 if begins > since else 0 :][-lines:])
    except OSError:
        return ""


def _signal(processes: Sequence[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.Error):
            send(process)


def _children(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True
