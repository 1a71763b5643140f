"""What it costs to decode a record by the reference alone, and as it is done with many records, in one run.

Each topic's records lie in a file; a turn decodes all of them once, and the two ways take turns.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.home import cpu_by_process

T0 = 1_760_000_000_000
ARRIVES = 100_000  # milliseconds after T0: nothing lies in its future
# What each topic's records are written like: numbers for times, Python's own spaces, times and decimals as text.
SCHEMAS = {
    "rides": None,
    "payments": None,
    "sales": "shop INT, city INT, amount DOUBLE, pieces INT, at TIMESTAMP",
    "orders": """
        order_id BIGINT, customer STRING, status STRING, total DECIMAL(12,2), paid BOOLEAN, day DATE, at TIMESTAMP,
        note STRING
    """,
}
WARM, TURNS = 2, 3


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Microseconds a record of CPU (the JVM's and its Python workers') and of wall time, least of some turns."""
    from tally.lake.session import session

    spark = session("tally-bench-decode", memory="2g")
    try:
        with tempfile.TemporaryDirectory(prefix="tally-bench-decode-") as folder:
            return {name: of_topic(spark, name, given.decoded, Path(folder) / name) for name in SCHEMAS}
    finally:
        spark.stop()


def of_topic(spark: Any, name: str, count: int, folder: Path) -> dict[str, Any]:
    """Both ways over one topic's records, on one core and on two, once it is seen that they give the same."""
    from tally.sources.records.decode import decode, reference

    of, values = topic_of(name), records(name, count)
    write(folder, values)
    found: dict[str, Any] = {"records": len(values), "bytes_each": round(sum(map(len, values)) / len(values))}
    for cores in (1, 2):
        raw = spark.read.parquet(str(folder)).coalesce(cores)
        ways = {
            "read": raw,  # what both have in common: the file
            "reference": reference(raw, of),
            "decode": decode(raw, of, together=True),
        }
        assert summed(ways["reference"]) == summed(ways["decode"]), f"{name}: the two decodes differ"
        costs = taken(spark, {way: writing(frame) for way, frame in ways.items()}, len(values))
        saved = net(costs, "decode") / net(costs, "reference")
        found[f"cores_{cores}"] = {**costs, "cpu_saved": round(1 - saved, 2)}
    return found


def net(costs: dict[str, dict[str, float]], way: str) -> float:
    return costs[way]["cpu_us"] - costs["read"]["cpu_us"]


def topic_of(name: str) -> Any:
    from tally.catalog.declare import topic
    from tally.catalog.load import catalogue

    schema = SCHEMAS[name]
    if schema is None:
        return catalogue().topic(name)
    return topic(name, schema=schema, event_time="at", lateness="1 minute")


def records(name: str, count: int) -> list[bytes]:
    """The demo's rides and payments, disorder and broken ones with them, the sales of `many`, and orders."""
    from tally.demo.rides import Rides

    if SCHEMAS[name] is None:
        made = (one for one in Rides(seed=1, rate=1000, start_ms=T0) if one.topic == name)
        return [next(made).value.encode() for _ in range(count)]
    chance = random.Random(7)
    return [json.dumps(one).encode() for one in {"sales": sales, "orders": orders}[name](chance, count)]


def sales(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for at in range(count):
        yield {
            "shop": chance.randrange(20), "city": chance.randrange(50), "amount": chance.randrange(8000) / 100,
            "pieces": chance.randrange(12), "at": T0 + at,
        }  # fmt: skip


def orders(chance: random.Random, count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        at = datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(milliseconds=number)
        yield {
            "order_id": number, "customer": f"customer {chance.randrange(5000)}",
            "status": chance.choice(("new", "paid", "sent")), "total": f"{chance.randrange(10**6) / 100:.2f}",
            "paid": chance.random() < 0.5, "day": f"{at:%Y-%m-%d}",
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "note": None if chance.random() < 0.3 else "left at the door, " * chance.randrange(4),
        }  # fmt: skip


def write(folder: Path, values: list[bytes]) -> None:
    """The records as Kafka gives them, in two files."""
    folder.mkdir()
    half = len(values) // 2 + 1
    for part in range(2):
        own = values[part * half : (part + 1) * half]
        arrived = [(T0 + ARRIVES + part * half + at) * 1000 for at in range(len(own))]
        table = pa.table({
            "partition": pa.array([part] * len(own), pa.int32()), "offset": pa.array(range(len(own)), pa.int64()),
            "timestamp": pa.array(arrived, pa.timestamp("us", "UTC")), "value": pa.array(own, pa.binary()),
        })  # fmt: skip
        pq.write_table(table, folder / f"{part}.parquet", compression="none", use_dictionary=False)


def summed(frame: Any) -> list[Any]:
    """How many records there are of each reason, and sums over hashes of all their columns."""
    from pyspark.sql import functions as F

    hashed = F.xxhash64(*frame.columns).cast("decimal(38,0)")
    nulls = sum(F.col(name).isNull().cast("long") for name in frame.columns)
    return sorted(map(str, frame.groupBy("_reason").agg(F.count("*"), F.sum(hashed), F.sum(nulls)).collect()))


def writing(frame: Any) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def taken(spark: Any, ways: dict[str, Callable[[], None]], count: int) -> dict[str, dict[str, float]]:
    """The least CPU and wall time of each way, in microseconds a record; they take turns."""
    from tally.lake.session import jvm_pid

    jvm = psutil.Process(jvm_pid(spark))
    costs: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(WARM + TURNS):
        for way, act in ways.items():
            began, before = time.monotonic(), sum(cpu_by_process(jvm).values())
            act()
            cost = sum(cpu_by_process(jvm).values()) - before, time.monotonic() - began
            if turn >= WARM:
                costs[way].append(cost)
    return {
        way: {
            "cpu_us": round(min(cpu for cpu, _ in found) * 1e6 / count, 2),
            "wall_us": round(min(wall for _, wall in found) * 1e6 / count, 2),
        }
        for way, found in costs.items()
    }
