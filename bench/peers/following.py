"""Engines that follow a live topic: when each pipeline lives, how old its rows are, what all of it costs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa

from bench.home import cpu_by_process, fresh_home
from bench.peers import meter
from bench.peers.engines.live import Commit, Live, LiveFlink, LiveTally
from bench.peers.functions import Function, functions, write_catalogue
from bench.peers.profile import recordings
from bench.peers.results import Run, stamped
from bench.peers.sales import Shop, read_back, wrong_rows

ENGINES: tuple[Live, ...] = (LiveTally(shared=False), LiveTally(shared=True), LiveFlink())
# The first micro-batches compile their code; nobody lives on them.
WARM_SECONDS = 45.0
# What is left when the last sale is sent is read within some micro-batches, or the engine is far behind.
CATCH_UP_SECONDS = 300.0
STOP_SECONDS = 120.0


@contextmanager
def home_of(engine: Live, count: int) -> Iterator[list[Function]]:
    """A home with a broker, the topic and so many functions."""
    chosen = functions(count)
    with TemporaryDirectory(prefix="tally-bench-") as folder:
        write_catalogue(Path(folder), chosen)
        with fresh_home(TALLY_CATALOG=folder, **engine.settings):
            yield chosen


@contextmanager
def running(engine: Live, chosen: Sequence[Function], recorded: Path | None = None) -> Iterator[psutil.Process]:
    """The engine at work; ended, with all below it, in whatever way this is left."""
    process = started(engine, chosen, recorded)
    try:
        yield process
    finally:
        end(process)


def started(engine: Live, chosen: Sequence[Function], recorded: Path | None = None) -> psutil.Process:
    command = engine.begin(chosen, recorded)
    with log_of(engine).open("a") as log:
        return psutil.Popen(command.words, env=command.whole_env, stdout=log, stderr=log)


def end(process: psutil.Process) -> None:
    """Ask, and after a while do not ask."""
    with suppress(psutil.Error):
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)
    meter.kill_all(process)


def measure(
    *,
    cases: Sequence[tuple[str, int, float]],
    seconds: float,
    engines: Sequence[str],
    repeats: int,
    profile: Path | None = None,
) -> Iterator[Run]:
    """Each engine with so many functions at a rate (workload, functions, sales a second), in turns."""
    named = [engine for engine in ENGINES if engine.name in engines]
    for number in range(repeats):
        for workload, count, rate in cases:
            for engine in named[number % len(named) :] + named[: number % len(named)]:
                recorded = recordings(profile, f"{engine.name}-{count}-{rate:g}")
                numbers, wrong = follow(engine, count, rate, seconds, recorded)
                case = f"{count} at {rate:g}/s" if count > 1 else f"{rate:g}/s"
                others = numbers.pop("others_cores", 0.0)
                yield Run(
                    workload=workload, case=case, engine=engine.name,
                    numbers=numbers, wrong=wrong, others_cores=others, **stamped(),
                )  # fmt: skip


def follow(
    engine: Live, count: int, rate: float, seconds: float, recorded: Path | None = None
) -> tuple[dict[str, Any], str]:
    """One engine's run: its numbers, and what is wrong with its rows."""
    with home_of(engine, count) as chosen:
        with Shop(rate) as shop:
            began = time.time()
            with running(engine, chosen, recorded) as process:
                time.sleep(WARM_SECONDS)
                spent, since, elsewhere = spent_by(process), time.time(), meter.Elsewhere()
                time.sleep(seconds)
                used = spent_by(process) - spent
                cores, others = used / (time.time() - since), elsewhere.cores(used)
                peak = meter.held(process) + meter.held_below(process)
                shop.close()
                sales = read_back()
                behind = shop.too_slow() or caught_up(engine, chosen, sales)
        told = {"cores": round(cores, 2), "peak_mb": round(peak / 2**20), "others_cores": others}
        told |= lives(engine.commits(chosen), sales, began, since)
        wrong = behind or wrong_rows(sales, engine.rows(chosen), engine.batches(chosen), chosen)
        if wrong:
            print(log_of(engine).read_text()[-2000:], file=sys.stderr)
        return told, wrong


def log_of(engine: Live) -> Path:
    """What the engine's processes say."""
    return Path(os.environ["TALLY_HOME"], f"{engine.name}.log")


def spent_by(process: psutil.Process) -> float:
    return sum(cpu_by_process(process).values())


def caught_up(engine: Live, chosen: Sequence[Function], sales: pa.Table) -> str:
    """Wait until every pipeline has all sales; a sentence where one has not."""
    until = time.monotonic() + CATCH_UP_SECONDS
    while True:
        found = engine.commits(chosen)
        lacking = [one.name for one in chosen if not has_all(found[one.name], sales, one)]
        if not lacking:
            return ""
        if time.monotonic() > until:
            return f"{len(lacking)} of {len(chosen)} pipelines have not caught up after {CATCH_UP_SECONDS:.0f} s"
        time.sleep(3)


def has_all(commits: Sequence[Commit], sales: pa.Table, function: Function) -> bool:
    """Whether the last sale that the function counts is in."""
    if not commits:
        return False
    if commits[-1].ranges is None:
        query = f"SELECT max(stamp) FROM sales WHERE pieces > {function.least}"
        return max(one.newest for one in commits) >= first_value(query, sales)
    ends = [max(one.ranges[p][1] for one in commits if one.ranges and p in one.ranges) for p in commits[-1].ranges]
    return sum(ends) >= int(sales.num_rows)


def first_value(query: str, sales: pa.Table) -> int:
    found = duckdb.sql(query).fetchall()[0]
    return int(found[0] or 0)


def lives(commits: Mapping[str, Sequence[Commit]], sales: pa.Table, began: float, since: float) -> dict[str, float]:
    """When each pipeline made its first commit, and the ages of the sales after an instant when they were committed."""
    firsts = [found[0].at / 1000 - began for found in commits.values() if found]
    ages = np.concatenate([ages_of(found, sales, since) for found in commits.values() if found] or [np.empty(0)])
    told: dict[str, float] = {"live": len(firsts)}
    if len(firsts) == len(commits):
        told["all_live_seconds"] = round(max(firsts), 1)
    if len(ages):
        told |= {
            name: round(float(np.percentile(ages, q)), 2) for name, q in (("p50", 50), ("p99", 99), ("worst", 100))
        }
    return told


def ages_of(commits: Sequence[Commit], sales: pa.Table, since: float) -> np.ndarray:
    """How many seconds after the broker had a sale the first commit with it was there."""
    partition, offset, stamp = (sales[name].to_numpy() for name in ("partition", "offset", "stamp"))
    if commits[0].ranges is None:
        newest = np.maximum.accumulate([one.newest for one in commits])
        visible = np.array([one.at for one in commits], dtype=np.int64)
        place = np.searchsorted(newest, stamp)
        wanted = (stamp > since * 1000) & (place < len(visible))
        return np.asarray((visible[place[wanted]] - stamp[wanted]) / 1000)
    found = []
    for one in np.unique(partition):
        starts = np.array([c.ranges[one][0] for c in commits if c.ranges and one in c.ranges], dtype=np.int64)
        visible = np.array([c.at for c in commits if c.ranges and one in c.ranges], dtype=np.int64)
        mine = (partition == one) & (stamp > since * 1000)
        place = np.searchsorted(starts, offset[mine], side="right") - 1
        found.append((visible[place] - stamp[mine]) / 1000)
    return np.concatenate(found)
