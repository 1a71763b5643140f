"""A comparison of many rows of which three differ, beside a full outer join of the two tables in Spark.

Each row is made of one event; three events come late, after the stream has closed all windows, and each must be found
by both, and named by the comparison.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.agreeing import WITH_IDS
from bench.home import catalogue, middle, run, tally
from bench.scattered import MINUTE, PIPELINE, T0, iso

KEYS = 1000  # of a window
PLANTED = 3
# Without the judgement, which a join has not either.
COMPARE = """
import json, sys
from tally.reconcile import comparison
from tally.reconcile.compare import compare
print(json.dumps(comparison.of(compare("sums", *sys.argv[1:])).as_json()))
"""


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """What whole processes cost at each size: the middle one of some turns that alternate."""
    return {"runs": [of_size(int(size), given.turns) for size in given.rows.split(",")]}


def of_size(rows: int, turns: int) -> dict[str, Any]:
    windows = -(-rows // KEYS)
    pipelines = {"sums": PIPELINE.format(window='tumbling("1 minute")')}
    with catalogue(WITH_IDS, pipelines, TALLY_SPARK_MEMORY="2g") as (home, bootstrap):
        send(bootstrap, rows, windows)
        tally("stream", "--until-caught-up")
        late = send_late(bootstrap, rows)
        tally("stream", "--until-caught-up")
        span = iso(T0), iso(T0 + windows * MINUTE)
        tally("batch", "sums", "--from", span[0], "--to", span[1])
        all_turns = [turn(home, span, rows, late) for _ in range(turns)]
    return {
        "rows": rows,
        "planted": PLANTED,
        **{name: middle([one[name] for one in all_turns]) for name in all_turns[0]},
    }


def turn(home: Path, span: tuple[str, ...], rows: int, late: list[list[int]]) -> dict[str, dict[str, float]]:
    """Each way once, and each answer looked at."""
    found, compare = run([sys.executable, "-c", COMPARE, *span])
    told = [[said["window_start"], said["shop"], said["cause"]] for said in found["rows"]]
    wanted = [[iso(start * 1000), shop, "late"] for start, shop in late]
    if sorted(told) != sorted(wanted) or (found["windows"], found["unexplained"]) != (rows, 0):
        raise SystemExit(f"the comparison found {told} among {found['windows']} rows, and planted were {wanted}")
    tables = [next((home / "lake" / layer / "sums").iterdir()) for layer in ("speed", "batch")]
    joined, join = run([sys.executable, "-m", "bench.others.outer_join", *map(str, tables), *span])
    if joined["differ"] != late:
        raise SystemExit(f"the join found {joined['differ']}, and planted were {late}")
    return {"compare": compare, "outer_join": join}


def send(bootstrap: str, rows: int, windows: int) -> None:
    """One event for each row, in the order of their times, and one that closes all windows."""
    producer, chance = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50}), random.Random(rows)
    for at in range(rows):
        window, shop = divmod(at, KEYS)
        time = T0 + window * MINUTE + shop * (MINUTE // KEYS)
        put(producer, at, shop, chance.randrange(10**5) / 100, time)
    put(producer, -1, 0, 1.0, T0 + (windows + 60) * MINUTE)
    flush(producer)


def send_late(bootstrap: str, rows: int) -> list[list[int]]:
    """One event more for three of the rows; their windows, in seconds, and keys."""
    producer, found = Producer({"bootstrap.servers": bootstrap}), list[list[int]]()
    for number in range(PLANTED):
        window, shop = divmod(rows * (2 * number + 1) // (2 * PLANTED), KEYS)
        put(producer, rows + number, shop, 0.25, T0 + window * MINUTE + 1)
        found.append([(T0 + window * MINUTE) // 1000, shop])
    flush(producer)
    return sorted(found)


def put(producer: Producer, number: int, shop: int, amount: float, at: int) -> None:
    body = {"id": number, "shop": shop, "amount": amount, "at": at}
    producer.produce("orders", json.dumps(body).encode(), partition=number % 2)
    producer.poll(0.01) if number % 1000 == 0 else None


def flush(producer: Producer) -> None:
    if producer.flush(120):
        raise SystemExit("Kafka did not take all events")
