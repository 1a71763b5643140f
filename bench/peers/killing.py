"""kill -9 of an engine and all its processes at work, and at once its start again: how long until the next commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.peers import meter
from bench.peers.engines.engine import newest_commit
from bench.peers.engines.live import Live
from bench.peers.following import ENGINES, caught_up, end, home_of, spent_by, started
from bench.peers.results import Run, stamped
from bench.peers.sales import Shop, read_back, wrong_rows

# From a start to the next kill: all is compiled, and there are checkpoints.
CALM_SECONDS = 30.0
PATIENCE = 180.0


class Stuck(Exception):
    """An engine commits nothing."""


def measure(*, rate: float, kills: int, engines: Sequence[str], repeats: int) -> Iterator[Run]:
    """Each engine in turns; a run is right only if no kill lost or doubled anything."""
    named = [engine for engine in ENGINES if engine.name in engines]
    for number in range(repeats):
        for engine in named[number % len(named) :] + named[: number % len(named)]:
            try:
                seconds, others, wrong = killed(engine, rate, kills)
            except Stuck as stuck:
                seconds, others, wrong = [], 0.0, str(stuck)
            for one in seconds or [0.0]:
                yield Run(
                    workload="kill", case=f"{rate:g}/s", engine=engine.name, numbers={"seconds": round(one, 2)},
                    wrong=wrong, others_cores=others, **stamped(),
                )  # fmt: skip


def killed(engine: Live, rate: float, kills: int) -> tuple[list[float], float, str]:
    """Seconds from each kill to the next commit with sales in it, what others took, what is wrong with the rows."""
    with home_of(engine, 1) as chosen, Shop(rate) as shop:
        elsewhere, used, moments = meter.Elsewhere(), 0.0, list[float]()
        process = started(engine, chosen)
        try:
            for _ in range(kills):
                wait_for_commit(engine.log(chosen[0]), after=time.time())
                time.sleep(CALM_SECONDS)
                used += spent_by(process)
                moments.append(time.time())
                meter.kill_all(process)
                process = started(engine, chosen)
            wait_for_commit(engine.log(chosen[0]), after=moments[-1])
            others = elsewhere.cores(used + spent_by(process))
            shop.close()
            sales = read_back()
            behind = caught_up(engine, chosen, sales)
        finally:
            end(process)
        commits = engine.commits(chosen)[chosen[0].name]
        nexts = [min(one.at / 1000 for one in commits if one.at / 1000 > moment) for moment in moments]
        wrong = behind or wrong_rows(sales, engine.rows(chosen), engine.batches(chosen), chosen)
        return [found - moment for found, moment in zip(nexts, moments, strict=True)], others, wrong


def wait_for_commit(log: Path, *, after: float) -> None:
    """Return when a table's log has a file that is younger; Stuck where it gets none."""
    until = time.monotonic() + PATIENCE
    while not (log.is_dir() and newest_commit(log) > after):
        if time.monotonic() > until:
            raise Stuck(f"no commit for {PATIENCE:.0f} s")
        time.sleep(0.2)
