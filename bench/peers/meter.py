"""What a command costs, to its end and with all that it leaves behind: `python -m bench.peers.meter FILE COMMAND...`.

The command runs below a process of its own that adopts orphans and waits for them, so the kernel's own account of CPU
holds also workers for which nobody waits. Lines that begin with @ are marks, and their time is kept.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tally.base.settings import REPO

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
SAMPLE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Cost:
    """One run of a command: seconds since the epoch, CPU seconds of all its processes, MB at their peak."""

    code: int
    began: float
    ended: float
    marks: dict[str, float]
    cpu_seconds: float
    peak_mb: int
    others_cores: float  # what other processes of the machine took meanwhile, the broker left out


def run(command: Sequence[str], env: Mapping[str, str], folder: Path, patience: float) -> Cost:
    """Run a command in a folder of its own, where its words go; one that takes longer than `patience` is killed."""
    file, elsewhere, began = folder / "cost.json", Elsewhere(), time.time()
    metered = [sys.executable, "-m", "bench.peers.meter", str(file), *command]
    with (folder / "stderr.log").open("w") as log:
        process = psutil.Popen(metered, env=dict(env), cwd=REPO, stderr=log, start_new_session=True)
        try:
            with suppress(psutil.TimeoutExpired):
                process.wait(patience)
        finally:
            kill_all(process)
    if not file.exists():
        return Cost(code=-9, began=began, ended=time.time(), marks={}, cpu_seconds=0, peak_mb=0, others_cores=0)
    told = json.loads(file.read_text())
    return Cost(**told, others_cores=elsewhere.cores(told["cpu_seconds"]))


class Elsewhere:
    """What the machine does, from when this is made, that is neither the engine nor its broker nor the bench."""

    def __init__(self) -> None:
        self.broker = broker_process()
        self.began, self.before = time.monotonic(), self.seconds()

    def seconds(self) -> float:
        return machine_seconds() - cpu_of(self.broker) - time.process_time()

    def cores(self, engine: float) -> float:
        """Cores, given the CPU seconds of the engine in that time."""
        spent = self.seconds() - self.before - engine
        return round(max(0.0, spent) / (time.monotonic() - self.began), 2)


def kill_all(top: psutil.Process) -> None:
    """Kill a process and all below it; one that has ended has nothing below it."""
    with suppress(psutil.Error):
        for process in [*top.children(recursive=True), top]:
            with suppress(psutil.Error):
                process.kill()
        top.wait(30)


def machine_seconds() -> float:
    """CPU seconds that the whole machine has spent."""
    spent = psutil.cpu_times()
    return float(spent.user + spent.nice + spent.system + spent.irq + spent.softirq)


def broker_process() -> psutil.Process | None:
    """The broker of this TALLY_HOME."""
    from tally.base.settings import settings
    from tally.embedded.broker import pidfile
    from tally.host import process

    return process.find(pidfile(settings()))


def cpu_of(process: psutil.Process | None) -> float:
    with suppress(psutil.Error):
        if process is not None:
            return float(sum(process.cpu_times()[:2]))
    return 0.0


def main() -> int:
    file, command = Path(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    began, over, peak = time.time(), threading.Event(), [0]

    def sample() -> None:
        while not over.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):
                peak[0] = max(peak[0], held_below(psutil.Process()))

    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    threading.Thread(target=sample, daemon=True).start()
    marks = {}
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("@"):
            marks[line.strip()] = time.time()
    code = process.wait()
    ended = time.time()
    over.set()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = {
        "code": code, "began": began, "ended": ended, "marks": marks,
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2), "peak_mb": round(peak[0] / 2**20),
    }  # fmt: skip
    file.write_text(json.dumps(told))
    return code


def held_below(top: psutil.Process) -> int:
    """Bytes that all below a process hold; what several share is counted once, also while one of them forks."""
    return sum(held(process) for process in top.children(recursive=True))


def held(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


if __name__ == "__main__":
    sys.exit(main())
