"""Many pipelines on one topic in one driver: when each lives, how old its rows are, and what all of them cost.

The same twice in one run: each with a query of its own, and all sharing one reading of the topic.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from bench.freshness import broker_times
from bench.home import TALLY, cpu_by_process, fresh_home, memory

TOPIC = """
from tally import topic

sales = topic(
    "sales", schema="shop INT, city INT, amount DOUBLE, pieces INT, at TIMESTAMP",
    event_time="at", lateness="30 seconds", partitions=4,
)
"""
PIPELINE = '''
from pyspark.sql import functions as F
from topics import sales

from tally import hopping, pipeline, tumbling


@pipeline(reads=sales, window={window}, key="{key}")
def {name}(sales):
    """One of many."""
    return sales.where(F.col("pieces") > {least}).groupBy("window", "{key}").agg({measures})
'''
WINDOWS = (
    'tumbling("10 seconds")',
    'tumbling("1 minute")',
    'hopping("1 minute", by="20 seconds")',
    'tumbling("30 seconds")',
)
MEASURES = (
    'F.count("*").alias("sales"), F.sum("amount").alias("takings")',
    'F.count("*").alias("sales"), F.max("amount").alias("largest"), F.min("pieces").alias("fewest")',
    'F.sum("pieces").alias("pieces"), F.avg("amount").alias("mean")',
    'F.count_if(F.col("amount") > 40).alias("dear"), F.sum("amount").alias("takings"), F.max("pieces").alias("most")',
)
# The first micro-batches compile their code; nobody lives on them.
WARM_SECONDS = 45.0


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Both ways, one after the other; each in a home of its own."""
    ways = {way: run(given, shared=way == "shared") for way in given.ways.split(",")}
    return {"pipelines": given.pipelines, "rate": given.events, "seconds": given.many_seconds, **ways}


def run(given: argparse.Namespace, *, shared: bool) -> dict[str, Any]:
    with fresh_home_of(given.pipelines, shared=shared):
        over = threading.Event()
        producer = threading.Thread(target=produce, args=(given.events, over))
        producer.start()
        began = time.time()
        stream = subprocess.Popen([TALLY, "stream"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        driver = psutil.Process(stream.pid)
        try:
            time.sleep(WARM_SECONDS)
            before, since = sum(cpu_by_process(driver).values()), time.time()
            time.sleep(given.many_seconds)
            cores = (sum(cpu_by_process(driver).values()) - before) / (time.time() - since)
            peak = memory(driver)
        finally:
            over.set()
            producer.join()
            stream.send_signal(signal.SIGTERM)
            stream.wait(120)
        return {"cores": round(cores, 2), "stream_mb": round(peak / 2**20), **lives(given.pipelines, began, since)}


def lives(pipelines: int, began: float, since: float) -> dict[str, Any]:
    """When each pipeline made its first commit, and the ages of all records at the commits that count them."""
    import numpy as np

    from tally.catalog.load import catalogue
    from tally.control import ledger

    times, firsts, ages, batches = broker_times("sales"), list[float](), list[float](), list[int]()
    for pipeline in catalogue().pipelines.values():
        entries = ledger.read(pipeline.name, pipeline.version)
        if not entries:
            continue
        firsts.append(entries[0].committed_at / 1000 - began)
        batches.append(len(entries))
        for entry in entries:
            for partition, (start, to) in entry.ranges.get("sales", {}).items():
                ages += [(entry.committed_at - t) / 1000 for t in times[partition][start:to] if t > since * 1000]
    told = {"live": len(firsts), "of": pipelines, "all_live_seconds": round(max(firsts), 1) if firsts else None}
    if not ages:
        return told
    p50, p99, worst = (round(float(np.percentile(ages, q)), 2) for q in (50, 99, 100))
    return {**told, "micro_batches": [min(batches), max(batches)], "p50": p50, "p99": p99, "worst": worst}


def fresh_home_of(pipelines: int, *, shared: bool) -> Any:
    """A home whose catalogue has so many pipelines, each another function."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"tally-bench-many-{os.getpid()}"
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    (folder / "topics.py").write_text(TOPIC)
    for at in range(pipelines):
        text = PIPELINE.format(
            window=WINDOWS[at % 4],
            key=("shop", "city")[at // 4 % 2],
            name=f"many_{at:03d}",
            least=at // 8,
            measures=MEASURES[(at + at // 4) % 4],
        )
        (folder / "pipelines" / f"many_{at:03d}.py").write_text(text)
    return fresh_home(TALLY_CATALOG=str(folder), TALLY_SHARED=str(shared).lower())


def produce(rate: float, over: threading.Event) -> None:
    """Sales, at a steady pace until it is over: seconds of disorder, now and then one that is late."""
    from confluent_kafka import Producer

    from tally.sources.client import librdkafka

    producer, chance, sent, began = Producer({**librdkafka(), "linger.ms": 20}), random.Random(7), 0, time.time()
    while not over.is_set():
        due = int((time.time() - began) * rate)
        for _ in range(sent, due):
            behind = chance.expovariate(1 / 2) if chance.random() > 0.01 else chance.uniform(60, 300)
            sale = {
                "shop": chance.randrange(20), "city": chance.randrange(50), "amount": chance.randrange(8000) / 100,
                "pieces": chance.randrange(12), "at": int((time.time() - behind) * 1000),
            }  # fmt: skip
            producer.produce("sales", json.dumps(sale), partition=chance.randrange(4))
        sent = due
        producer.poll(0)
        time.sleep(0.02)
    producer.flush(30)
