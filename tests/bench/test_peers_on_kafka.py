"""What the bench does on a broker: the loop that Tally is held against is right, and what is sold is read back."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers import functions, rides, sales
from bench.peers.answers import judge
from bench.peers.engines.engine import Work
from bench.peers.engines.native import Native
from tally.base.settings import REPO


def test_the_native_loop_drains_a_topic_once_also_when_it_is_started_again(broker: str, tmp_path: Path) -> None:
    rides.produce(broker, "native-rides", 5_000)
    work = Work(bootstrap=broker, topic="native-rides", key="zone", folder=tmp_path)
    truth = rides.truth(5_000, "zone", tmp_path)
    for _ in range(2):
        command = Native().drain(work)
        subprocess.run(command.words, env=command.whole_env, cwd=REPO, check=True, timeout=120)
        assert judge(Native().rows(work), truth).wrong == ""


def test_a_shop_sells_at_its_rate_and_all_of_it_is_read_back(broker: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(functions.TOPIC, sales.PARTITIONS, 1)])[functions.TOPIC].result()
    began = time.time()
    with sales.Shop(rate=300) as shop:
        time.sleep(1)
    took = time.time() - began
    found = sales.read_back().to_pylist()
    assert (took - shop.behind - 2) * 300 <= len(found) <= took * 300
    places = {(row["partition"], row["offset"]) for row in found}
    assert len(places) == len(found)
    assert {row["partition"] for row in found} == set(range(sales.PARTITIONS))
    assert all(row["at"] <= row["stamp"] + 1000 and 0 <= row["shop"] < 20 for row in found)


def test_a_shop_that_cannot_keep_its_rate_says_so() -> None:
    shop = sales.Shop(rate=100)
    assert shop.too_slow() == ""
    shop.behind = 60.0
    assert shop.too_slow() == "sales are 60 s behind their rate"
