"""The batch half under fire: killed at each step, twice at once, and beside OPTIMIZE and VACUUM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from faults.kinds.kills import endless
from faults.report import Heal
from faults.run import Run, iso
from faults.stack import TALLY
from faults.truth import MINUTE
from tally.base.settings import REPO

POINTS = (
    "ingest.before_quarantine",
    "ingest.between_quarantine_and_archive",
    "ingest.after_archive",
    "ingest.after_record",
    "restate.before_unseal",
    "restate.before_commit",
    "restate.after_commit",
    "reconcile.before_withdraw",
    "reconcile.before_audit",
    "reconcile.after_audit",
    "reconcile.after_compare",
    "judge.before_verdict",
    "seal.before_write",
    "seal.after_write",
)


def at_failpoints(run: Run) -> None:
    """Each step in turn; the next run, as Airflow's retry would be, must go on from there."""
    died: list[str] = []
    for point in endless(list(POINTS), run.rng):
        if run.left() < 75:
            break
        run.stack.arm(point)
        code, _ = run.stack.settle(run.span())
        if code != -signal.SIGKILL:
            run.result.notes.append(f"{point} was not passed" if run.stack.disarm() else f"{point}: exit {code}")
            continue
        died.append(point)
    since = time.monotonic()
    code, found = run.stack.settle(run.span())
    if code or any("refused" in one for one in found.values()):
        run.broken("I5", f"the run after the kills ended with {code}: {found}")
    took = round(time.monotonic() - since, 1)
    run.result.heals += [Heal(point=point, seconds=took, by="the next run") for point in died]


def at_once(run: Run) -> None:
    """The stream, two equal backfills, one that overlaps, and OPTIMIZE with VACUUM, all together; one is killed."""
    while run.left() > 150:
        name = run.rng.choice(run.stack.pipelines)
        end = run.sender.reached - run.sender.reached % MINUTE
        run.stack.settle(run.span())
        first, middle = iso(run.sender.start_ms - run.sender.start_ms % MINUTE), iso(end - 10 * MINUTE)
        backfill = [TALLY, "backfill", name, "--from", first, "--to", iso(end), "--json"]
        over = [TALLY, "backfill", name, "--from", middle, "--to", iso(end + 5 * MINUTE), "--json"]
        tidy = [sys.executable, str(REPO / "spark" / "maintain.py")]
        jobs = [spawn(words) for words in (backfill, backfill, over, tidy)]
        victim = run.rng.choice(jobs[:3])
        time.sleep(run.rng.uniform(8, 25))
        since, alive = time.monotonic(), victim.poll() is None
        victim.kill()
        codes = [job.wait(400) for job in jobs]
        if alive:
            point = "backfill killed beside three others"
            run.result.heals.append(Heal(point=point, seconds=round(time.monotonic() - since, 1), by="the next run"))
        bad = [code for job, code in zip(jobs, codes, strict=True) if job is not victim and code not in (0, 1)]
        if bad:
            run.broken("I5", f"jobs beside each other ended with {codes}")
        run.result.notes.append(f"backfill, backfill, overlapping backfill, maintain ended with {codes}")
        if not run.moves():
            run.broken("I5", "the stream stands after the backfills")


def spawn(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ})
