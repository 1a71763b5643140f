"""The campaign's kills put on a plain Spark job, in a loop that starts it again, and held against the same truth.

It gets no broken records: one from the future would move its watermark, and all that came after would be late.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import truth
from faults.invariants import difference
from faults.kinds.kills import endless
from faults.producer import FLUSH_SHOP, Disorder, Sender
from faults.run import HEAL_SECONDS
from faults.stack import Stack, running, until
from faults.truth import SHAPES, Rows

PIPELINE = "meter_minutes"  # what the job computes is this pipeline's
WAYS = ("merge", "append", "append in foreachBatch")
FILES = (
    "checkpoint/offsets/*",
    "checkpoint/commits/*",
    "checkpoint/state/*/*/*",
    "table/*.parquet",
    "table/_delta_log/*",
)
START_SECONDS = 60.0


@dataclass
class Job:
    """The job and the loop around it."""

    stack: Stack
    way: str
    process: subprocess.Popen[bytes] | None = None
    halt: threading.Event = field(default_factory=threading.Event)

    @property
    def table(self) -> Path:
        return self.stack.folder / "table"

    def loop(self) -> None:
        """As a shell would: `while true; do job; done`."""
        words = [self.stack.bootstrap, SHAPES[PIPELINE].topic, str(self.table), str(self.stack.folder / "checkpoint")]
        log = (self.stack.folder / "plain.log").open("ab")
        while not self.halt.is_set():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "faults.plain_job", *words, self.way],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            self.process.wait()

    def kill(self) -> None:
        if self.process is not None:
            with suppress(OSError):
                os.killpg(self.process.pid, 9)

    def commits(self) -> int:
        """The number of the newest micro-batch that Spark calls done; -1 where none is."""
        folder = self.stack.folder / "checkpoint" / "commits"
        return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)

    def moves(self) -> bool:
        before = self.commits()
        return until(lambda: self.commits() > before, START_SECONDS)


def measure(seed: int, seconds: float, way: str) -> dict[str, Any]:
    """Kill the job again and again; what its table lacks, and has too often, when all is read."""
    rng = random.Random(f"{seed} plain {way}")
    with running(Stack([PIPELINE]), driver=False) as stack:
        sender = Sender(stack.bootstrap, random.Random(rng.random()), disorder=Disorder(bad=0))
        job = Job(stack, way)
        loop = threading.Thread(target=job.loop, daemon=True)
        sender.start()
        loop.start()
        try:
            job.moves()
            heals = kills(job, rng, time.monotonic() + seconds)
            sender.finish()
            read = until(lambda: caught_up(job, sender), HEAL_SECONDS, 1.0)
        finally:
            sender.halt.set()
            job.halt.set()
            job.kill()
            loop.join(30)
        return {"way": way, "kills": len(heals), "caught_up": read, "heals": heals, **against(sender, rows(job.table))}


def kills(job: Job, rng: random.Random, deadline: float) -> list[float]:
    """kill -9 of the whole job as one of its files appears; the seconds until it moved again."""
    took = []
    for pattern in endless(list(FILES), rng):
        if time.monotonic() > deadline - 20:
            break
        known, limit = set(job.stack.folder.glob(pattern)), time.monotonic() + 10
        while time.monotonic() < limit and not set(job.stack.folder.glob(pattern)) - known:
            pass
        job.kill()
        since = time.monotonic()
        if job.moves():
            took.append(round(time.monotonic() - since, 1))
    return took


def caught_up(job: Job, sender: Sender) -> bool:
    """Whether the job's last finished micro-batch holds every record, and one more has passed."""
    topic, last = SHAPES[PIPELINE].topic, job.commits()
    with suppress(OSError, ValueError, KeyError):
        lines = (job.stack.folder / "checkpoint" / "offsets" / str(last - 1)).read_text().splitlines()
        ends = json.loads(lines[-1])[topic]
        return all(one.place[2] < ends[str(one.place[1])] for one in sender.sent if one.place[0] == topic)
    return False


def rows(table: Path) -> Rows:
    """The table as a reader has it; a window and key that is there twice counts twice."""
    from deltalake import DeltaTable

    found: Rows = {}
    for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist():
        key = (round(row["start"].timestamp() * 1000), round(row["end"].timestamp() * 1000), row["shop"])
        count, total = found.get(key, (0, 0.0))
        found[key] = count + row["n"], total + row["total"]
    return found


def against(sender: Sender, got: Rows) -> dict[str, Any]:
    """Events lost and doubled; the last window of all is left out, it need not be there yet."""
    events = truth.valid(sender.sent, SHAPES[PIPELINE].topic)
    due = truth.windows(events, SHAPES[PIPELINE])
    kept = [{key: row for key, row in side.items() if key[2] != FLUSH_SHOP} for side in (due, got)]
    lost, doubled = difference(*kept)
    late = sum(one.kind in ("late", "hours late") for one in events)
    return {"events": len(events), "lost": lost, "doubled": doubled, "sent_late": late}


def main() -> int:
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    for way in sys.argv[3:] or WAYS:
        print(json.dumps({"seed": seed, **measure(seed, seconds, way)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
