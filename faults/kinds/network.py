"""The network between driver and broker is cut, while records are planned, fetched or waited for."""

from __future__ import annotations

import time

from faults.kinds.kills import FILES, appeared
from faults.producer import TOPICS
from faults.run import Run

LONG_SECONDS = 180.0  # longer than any time-out of a consumer, an admin client or a task
LOOKS = (45.0, 90.0, 150.0)  # seconds of the long cut after which people look
BURST = 4000
WELL = {"healthy", "idle"}


def cut(run: Run) -> None:
    """Once for three minutes, then shortly and in mid-fetch for as long as time is left."""
    for_long(run)
    while run.left() > 90:
        under_load = run.rng.random() < 0.5
        shortly(run, run.rng.uniform(5, 40), under_load=under_load)
        run.one_writer()


def for_long(run: Run) -> None:
    """Three minutes without a network: what do people see meanwhile, on either side of the cut?"""
    network = run.stack.network
    assert network is not None
    network.cut()
    began = time.monotonic()
    for seconds in LOOKS:
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        for side, before in (("inside", network.inside), ("outside", [])):
            rows = run.stack.tally("status", before=before)
            said = "; ".join(f"{row['pipeline']} {row['state']}: {row['reason']}" for row in rows)
            run.result.notes.append(f"cut for {seconds:.0f} s, seen from {side}: {said}")
            if seconds == LOOKS[-1] and any(row["state"] in WELL for row in rows):
                run.broken("I5", f"cut for {seconds:.0f} s, and seen from {side}: {said}")
    time.sleep(max(0.0, began + LONG_SECONDS - time.monotonic()))
    network.join()
    run.heals("cut for 3 minutes", time.monotonic(), by="itself, once the network is back")
    run.one_writer()


def shortly(run: Run, seconds: float, *, under_load: bool) -> None:
    """A cut at any moment, or as a micro-batch with many records has been planned and is being fetched."""
    network = run.stack.network
    assert network is not None
    point = "cut in mid-fetch" if under_load else "cut"
    if under_load:
        load(run)
        if not appeared(*FILES["write-ahead log"], network.cut):
            network.cut()
    else:
        time.sleep(run.rng.uniform(0.2, 3.0))
        network.cut()
    time.sleep(seconds)
    network.join()
    run.heals(point, time.monotonic(), by="itself, once the network is back")


def load(run: Run) -> None:
    for _ in range(BURST):
        with run.sender.guard:
            run.sender.one(run.rng.choice(TOPICS))
