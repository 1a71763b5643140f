"""The loop that Tally is held against is a right one: it counts what is there, once, also when it is started again."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.peers import rides
from bench.peers.answers import judge
from bench.peers.engines.engine import Work
from bench.peers.engines.native import Native
from tally.base.settings import REPO


def test_it_drains_a_topic_once(broker: str, tmp_path: Path) -> None:
    rides.produce(broker, "native-rides", 5_000)
    work = Work(bootstrap=broker, topic="native-rides", key="zone", folder=tmp_path)
    truth = rides.truth(5_000, "zone", tmp_path)
    for _ in range(2):
        command = Native().drain(work)
        subprocess.run(command.words, env=command.whole_env, cwd=REPO, check=True, timeout=120)
        assert judge(Native().rows(work), truth).wrong == ""
