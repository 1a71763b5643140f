"""A comparison in which nothing differs, as windows grow in number, beside DuckDB that reads both tables.

Each size has a home of its own: one-minute windows of ten events with unique ids. Every run is a new process.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from typing import Any

from confluent_kafka import Producer

from bench.home import tally
from bench.scattered import EVENTS, KEYS, MINUTE, T0, TOPICS, WINDOWS, catalogue, iso, said

WITH_IDS = TOPICS.replace('schema="', 'schema="id BIGINT, ').replace('event_time="at"', 'event_time="at", unique="id"')
REPEATS = 5
COMPARE = """
import sys, time
began = time.monotonic()
from tally.reconcile.compare import compare
number = compare("sums", sys.argv[1], sys.argv[2])
took, cpu = time.monotonic() - began, time.process_time()
began = time.monotonic()
compare("sums", sys.argv[1], sys.argv[2])
again = time.monotonic() - began
from pyspark import SparkContext
from tally.reconcile import comparison
found = comparison.of(number)
assert found.windows == found.equal == int(sys.argv[3]) and found.conserved.balanced, found.as_json()
print(took, again, cpu, SparkContext._active_spark_context is not None)
"""
# The same, left to Spark.
BY_SPARK = (
    """
from tally.reconcile import compare as module
from tally.reconcile.first_pass import layers
from tally.reconcile.first_pass.unsure import Unsure
def unsure(*_):
    raise Unsure("a bench asks Spark")
layers.read, module.kept = unsure, lambda _: None
"""
    + COMPARE
)
# As anybody would who wants to know whether two tables are the same: the newest rows of one beside the other.
DUCKDB = """
import sys, time
began = time.monotonic()
import duckdb
speed, batch = sys.argv[1:3]
newest = (
    f"SELECT * FROM read_parquet('{speed}') "
    "QUALIFY row_number() OVER (PARTITION BY window_start, shop ORDER BY _batch DESC) = 1"
)
near = "abs(s.total - b.total) <= 1e-9 * abs(b.total)"
both = f"({newest}) AS s JOIN read_parquet('{batch}') AS b USING (window_start, window_end, shop, n)"
times, cpu = [began], []
for _ in range(2):
    assert duckdb.execute(f"SELECT count(*) FROM {both} WHERE {near}").fetchall() == [(int(sys.argv[3]),)]
    times.append(time.monotonic())
    cpu.append(time.process_time())
print(times[1] - times[0], times[2] - times[1], cpu[0], False)
"""


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the first comparison of a version, of one that Spark makes, of every other one, and of DuckDB."""
    return {"runs": [said(run(int(size))) for size in given.agreeing.split(",")]}


def run(size: int) -> dict[str, Any]:
    with catalogue(WINDOWS["tumbling"], WITH_IDS) as (home, bootstrap):
        send(bootstrap, size)
        tally("stream", "--until-caught-up")
        span = iso(T0), iso(T0 + size * MINUTE)
        tally("batch", "sums", "--from", span[0], "--to", span[1])
        first = timed(COMPARE, *span, str(size))
        tables = (f"{home}/lake/{layer}/sums/*/*/*.parquet" for layer in ("speed", "batch"))
        given = [*tables, str(size)]
        spark = timed(BY_SPARK, *span, str(size))
        both = [(timed(COMPARE, *span, str(size)), timed(DUCKDB, *given)) for _ in range(REPEATS)]
    compared, read = zip(*both, strict=True)
    return {
        "windows": size,
        "events": size * EVENTS,
        "first": first,
        "by_spark": spark,
        "compare": middle(compared),
        "duckdb": middle(read),
        "times_duckdb": round(middle(compared)["wall_seconds"] / middle(read)["wall_seconds"], 1),
        "times_duckdb_cpu": round(middle(compared)["cpu_seconds"] / middle(read)["cpu_seconds"], 1),
    }


def send(bootstrap: str, size: int) -> None:
    """Ten events a window, none late, and one that closes them all."""
    producer, chance = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20}), random.Random(size)
    for at in range(size * EVENTS):
        window = at // EVENTS
        event = {"shop": window % KEYS, "amount": chance.randrange(10**5) / 100}
        event |= {"id": at, "at": T0 + window * MINUTE + at % EVENTS * 4_000}
        producer.produce("orders", json.dumps(event).encode(), partition=at % 2)
        producer.poll(0) if at % 1000 == 0 else None
    last = {"id": -1, "shop": 0, "amount": 1.0, "at": T0 + (size + 60) * MINUTE}
    producer.produce("orders", json.dumps(last).encode(), partition=0)
    assert producer.flush(60) == 0


def timed(script: str, *arguments: str) -> dict[str, Any]:
    """Run it in a new process: seconds with and without Python's start, its CPU seconds, seconds of the same once more
    in it, and whether it had a JVM.
    """
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    *told, jvm = done.stdout.split()[-4:]
    once, again, cpu = (round(float(seconds), 2) for seconds in told)
    found = {"inside_seconds": once, "cpu_seconds": cpu, "again_seconds": again, "jvm": jvm == "True"}
    return {"wall_seconds": round(took - float(told[1]), 2), **found}


def middle(runs: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """The medians of some runs, the fastest and the slowest."""
    walls = sorted(one["wall_seconds"] for one in runs)
    names = ("inside_seconds", "cpu_seconds", "again_seconds")
    return {
        "wall_seconds": statistics.median(walls),
        "spread": [walls[0], walls[-1]],
        **{name: statistics.median(one[name] for one in runs) for name in names},
        "jvm": any(one["jvm"] for one in runs),
    }
