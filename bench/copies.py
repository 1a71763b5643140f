"""What it costs a topic's stream to take each ride once: the same rides drained without ids, with ids, and with copies.

One in a hundred is there twice, in the same partition or in another one. Each answer is held against what was sent.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.home import fresh_home
from bench.peers import meter, rides
from bench.peers.answers import judge
from bench.peers.drain import PATIENCE
from bench.peers.engines.engine import Work, newest_commit
from bench.peers.engines.tally import Tally

# How many partitions further the copy of a ride lies, by what is on a topic.
COPIES = {"plain": None, "ids": None, "same": 0, "other": 1}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds from when the stream began to its last commit, and CPU seconds a million, start included."""
    names, count = given.topics.split(","), given.drained
    with fresh_home(), tempfile.TemporaryDirectory(prefix="tally-copies-") as folder:
        from tally.base.settings import settings

        bootstrap, topics = settings().bootstrap(), {name: f"rides-{COPIES[name]}" for name in names}
        for topic, copies in {topics[name]: COPIES[name] for name in names}.items():
            rides.produce(bootstrap, topic, count, copies=copies)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(given.turns):
            for name in names:
                found[name].append(drained(bootstrap, topics[name], Path(folder), count, ids=name != "plain"))
        return {"rides": count, **found}


def drained(bootstrap: str, topic: str, folder: Path, count: int, *, ids: bool) -> dict[str, Any]:
    engine, where = Tally(shared=True, ids=ids), folder / "one"
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    work = Work(bootstrap=bootstrap, topic=topic, key=rides.KEYS["W1"], folder=where)
    command = engine.drain(work)
    cost = meter.run(command.words, command.whole_env, where, PATIENCE)
    if cost.code:
        return {"wrong": f"ended with {cost.code}: {(where / 'stderr.log').read_text()[-500:]}"}
    answer = judge(engine.rows(work), rides.truth(count, work.key, folder, ids=ids))
    return {
        "seconds": round(newest_commit(engine.commits(work)) - engine.up_at(work, cost), 2),
        "cpu_seconds_per_million": round(cost.cpu_seconds / count * 1e6, 2),
        "peak_mb": cost.peak_mb,
        "late": answer.late,
        "wrong": answer.wrong,
        "others_cores": cost.others_cores,
    }
