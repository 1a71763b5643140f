"""`python -m faults.plain`: the campaign's kills on a plain Spark job in a loop, and two such loops on one checkpoint.

Held against the same truth as Tally. It gets no broken records: one from the future would move its watermark, and all
that came after would be late. Exit code 0: what a plain job loses is an answer and no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import truth
from faults.invariants import difference
from faults.kinds.kills import endless
from faults.producer import FLUSH_SHOP, Disorder, Sender
from faults.report import in_columns, percentile
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
    """The job and the loop around it; two loops where two supervisors have each started one."""

    stack: Stack
    way: str
    running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    halt: threading.Event = field(default_factory=threading.Event)

    @property
    def table(self) -> Path:
        return self.stack.folder / "table"

    def loop(self, number: int = 0) -> None:
        """As a shell would: `while true; do job; done`."""
        words = [self.stack.bootstrap, SHAPES[PIPELINE].topic, str(self.table), str(self.stack.folder / "checkpoint")]
        log = (self.stack.folder / "plain.log").open("ab")
        while not self.halt.is_set():
            self.running[number] = subprocess.Popen(
                [sys.executable, "-m", "faults.plain_job", *words, self.way],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
            self.running[number].wait()

    def kill(self) -> None:
        for process in self.running.values():
            with suppress(OSError):
                os.killpg(process.pid, 9)

    def commits(self) -> int:
        """The number of the newest micro-batch that Spark calls done; -1 where none is."""
        folder = self.stack.folder / "checkpoint" / "commits"
        return max((int(file.name) for file in folder.glob("*") if file.name.isdigit()), default=-1)

    def moves(self) -> bool:
        before = self.commits()
        return until(lambda: self.commits() > before, START_SECONDS)


def measure(seed: int, seconds: float, way: str, *, loops: int = 1) -> dict[str, Any]:
    """Kill the job again and again, or run two at once; what its table lacks, and has too often, when all is read."""
    rng = random.Random(f"{seed} plain {way} {loops}")
    with running(Stack([PIPELINE]), driver=False) as stack:
        sender = Sender(stack.bootstrap, random.Random(rng.random()), disorder=Disorder(bad=0))
        job = Job(stack, way)
        threads = [threading.Thread(target=job.loop, args=(number,), daemon=True) for number in range(loops)]
        sender.start()
        for thread in threads:
            thread.start()
        try:
            job.moves()
            heals = kills(job, rng, time.monotonic() + seconds) if loops == 1 else rest(seconds)
            sender.finish()
            read = until(lambda: caught_up(job, sender), HEAL_SECONDS, 1.0)
        finally:
            sender.halt.set()
            job.halt.set()
            job.kill()
            for thread in threads:
                thread.join(30)
        said = against(sender, rows(job.table))
        return {"way": way, "at_once": loops, "kills": len(heals), "caught_up": read, "heals": heals, **said}


def rest(seconds: float) -> list[float]:
    time.sleep(seconds)
    return []


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


HEADS = ("plain Spark", "drivers", "kills", "events", "lost", "doubled", "all read", "p50 s", "p95 s", "max s")


def table(found: Sequence[dict[str, Any]]) -> str:
    """The results in columns, as the campaign's own are."""
    rows = []
    for one in found:
        times = [f"{percentile(one['heals'], share):.1f}" for share in (0.5, 0.95, 1.0)]
        counts = (str(one["kills"]), f"{one['events']:,}", f"{one['lost']:,}", f"{one['doubled']:,}")
        rows.append((one["way"], str(one["at_once"]), *counts, "yes" if one["caught_up"] else "no",
                     *(times if one["heals"] else ["-"] * 3)))  # fmt: skip
    return in_columns([HEADS, *rows])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.plain", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--seconds", type=float, default=240.0, help="how long each way is killed at")
    parser.add_argument("--only", action="append", choices=WAYS, help="just this way; may be repeated")
    parser.add_argument("--races", type=int, default=3, help="how often two drivers share one checkpoint")
    parser.add_argument("--race-seconds", type=float, default=45.0, help="for how long they do")
    given = parser.parse_args()
    found = [measure(given.seed, given.seconds, way) for way in given.only or WAYS]
    for race in range(given.races):
        found.append(measure(given.seed + race, given.race_seconds, "append in foreachBatch", loops=2))
    print(f"plain Spark, seed {given.seed}\n{table(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
