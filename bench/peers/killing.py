"""kill -9 of an engine and all its processes at work, and at once its start again: how long until the next commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.peers import meter
from bench.peers.engines.engine import newest_commit
from bench.peers.engines.live import Live
from bench.peers.following import ENGINES, caught_up, end, home_of, started
from bench.peers.results import Run, stamped
from bench.peers.sales import Shop, read_back, wrong_rows

# From a start to the next kill: all is compiled, and there are checkpoints.
CALM_SECONDS = 30.0
PATIENCE = 180.0


def measure(*, rate: float, kills: int, engines: Sequence[str], repeats: int) -> Iterator[Run]:
    """Each engine in turns; a run is right only if no kill lost or doubled anything."""
    named = [engine for engine in ENGINES if engine.name in engines]
    for number in range(repeats):
        for engine in named[number % len(named) :] + named[: number % len(named)]:
            busy, began = meter.machine_seconds(), time.time()
            seconds, wrong = killed(engine, rate, kills)
            others = (meter.machine_seconds() - busy) / (time.time() - began)
            for one in seconds or [0.0]:
                yield Run(
                    workload="kill", case=f"{rate:g}/s", engine=engine.name, numbers={"seconds": round(one, 2)},
                    wrong=wrong, others_cores=round(others, 2), **stamped(),
                )  # fmt: skip


def killed(engine: Live, rate: float, kills: int) -> tuple[list[float], str]:
    """Seconds from each kill to the next commit with sales in it; and what is wrong with the rows in the end."""
    with home_of(engine, 1) as chosen, Shop(rate) as shop:
        process = started(engine, chosen)
        try:
            moments = []
            for _ in range(kills):
                wait_for_commit(engine.log(chosen[0]), after=time.time())
                time.sleep(CALM_SECONDS)
                moments.append(time.time())
                meter.kill_all(process)
                process = started(engine, chosen)
            wait_for_commit(engine.log(chosen[0]), after=moments[-1])
            shop.close()
            sales = read_back()
            behind = caught_up(engine, chosen, sales)
        finally:
            end(process)
        commits = engine.commits(chosen)[chosen[0].name]
        nexts = [min(one.at / 1000 for one in commits if one.at / 1000 > moment) for moment in moments]
        wrong = behind or wrong_rows(sales, engine.rows(chosen), engine.batches(chosen), chosen)
        return [found - moment for found, moment in zip(nexts, moments, strict=True)], wrong


def wait_for_commit(log: Path, *, after: float) -> None:
    """Until a table's log has a file that is younger."""
    until = time.monotonic() + PATIENCE
    while not (log.is_dir() and newest_commit(log) > after):
        if time.monotonic() > until:
            raise SystemExit(f"no commit in {log} for {PATIENCE:.0f} s")
        time.sleep(0.2)
