"""How long an engine takes for all that a topic holds, to the commit of the last of it, and what that costs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.peers import meter, rides
from bench.peers.answers import judge
from bench.peers.engines.engine import Engine, Work, newest_commit
from bench.peers.engines.flink import Flink
from bench.peers.engines.native import Native
from bench.peers.engines.tally import Tally
from bench.peers.engines.tuned import Tuned
from bench.peers.profile import recordings
from bench.peers.results import Run, stamped

ENGINES: tuple[Engine, ...] = (Tally(shared=False), Tally(shared=True), Flink(), Native(), Tuned())
PATIENCE = 900.0


def measure(
    bootstrap: str,
    folder: Path,
    *,
    sizes: list[int],
    keys: list[str],
    engines: Sequence[str],
    repeats: int,
    profile: Path | None,
) -> Iterator[Run]:
    """Each engine on each case, in turns, so that what the machine does meanwhile befalls all."""
    for size in sizes:
        rides.produce(bootstrap, f"rides-{size}", size)
    chosen = [engine for engine in ENGINES if engine.name in engines]
    for number in range(repeats):
        turned = chosen[number % len(chosen) :] + chosen[: number % len(chosen)]
        for size in sizes:
            for key in keys:
                for engine in turned:
                    yield one(engine, bootstrap, folder, size, key, profile=profile)


def one(engine: Engine, bootstrap: str, folder: Path, size: int, key: str, *, profile: Path | None) -> Run:
    """Run an engine once, in an empty folder; its numbers are there only if its answer is right."""
    where = folder / f"{engine.name}-{size}-{key}"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    recorded = recordings(profile, f"{engine.name}-{key}-{size}")
    work = Work(bootstrap=bootstrap, topic=f"rides-{size}", key=rides.KEYS[key], folder=where, profile=recorded)
    command = engine.drain(work)
    cost = meter.run(command.words, command.whole_env, where, PATIENCE)
    wrong, numbers = f"ended with {cost.code}", dict[str, float]()
    if cost.code == 0:
        answer = judge(engine.rows(work), rides.truth(size, rides.KEYS[key], folder))
        seconds = newest_commit(engine.commits(work)) - engine.up_at(work, cost)
        wrong = answer.wrong
        numbers = {
            "seconds": round(seconds, 2),
            "events_per_second": round(size / seconds),
            "cpu_seconds_per_million": round(cost.cpu_seconds / size * 1e6, 2),
            "peak_mb": cost.peak_mb,
            "command_seconds": round(cost.ended - cost.began, 2),
            "late": answer.late,
            "rows": answer.rows,
        }
    if wrong:
        print((where / "stderr.log").read_text()[-2000:], file=sys.stderr)
    shutil.rmtree(where)
    return Run(
        workload="drain",
        case=f"{key} {in_millions(size)}",
        engine=engine.name,
        numbers=numbers,
        wrong=wrong,
        others_cores=cost.others_cores,
        **stamped(),
    )


def in_millions(size: int) -> str:
    return f"{size / 1e6:g} M"
