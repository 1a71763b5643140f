"""How old a ride is when its window shows it: from the broker's time of a record to the commit that counts it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
from typing import Any

from bench.home import TALLY, fresh_home, memory

PIPELINE = "vendor_trips"
WARM_SECONDS = 60.0  # the first micro-batches compile their code; nobody lives on them


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Produce live at a rate, stream one pipeline, and take each record's age at its commit."""
    import psutil

    with fresh_home():
        rides = [
            "produce",
            "rides",
            "--rate",
            f"{given.rate:g}",
            "--no-payments",
            "--for",
            f"{given.seconds:g} seconds",
        ]
        stream = subprocess.Popen([TALLY, "stream", PIPELINE], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        producer = subprocess.Popen([TALLY, *rides], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            began = time.time()
            producer.wait()
            peak = memory(psutil.Process(stream.pid))
            time.sleep(5)
        finally:
            for process in (producer, stream):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
        return {"rate": given.rate, "stream_mb": round(peak / 2**20), **ages(began + WARM_SECONDS)}


def ages(since: float) -> dict[str, Any]:
    """Percentiles over all records that reached the broker after an instant."""
    import numpy as np

    from tally.catalog.load import catalogue
    from tally.control import ledger

    pipeline = catalogue().pipeline(PIPELINE)
    batches = ledger.read(pipeline.name, pipeline.version)
    times = broker_times("rides")
    found = []
    for batch in batches:
        for partition, (start, to) in batch.ranges["rides"].items():
            found += [batch.committed_at - t for t in times[partition][start:to] if t > since * 1000]
    p50, p99, worst = (float(np.percentile(found, q)) / 1000 for q in (50, 99, 100))
    return {"records": len(found), "micro_batches": len(batches), "p50": p50, "p99": p99, "worst": worst}


def broker_times(topic: str) -> dict[int, list[int]]:
    """The broker's time of every record, by partition and offset (the topic holds no gaps)."""
    from confluent_kafka import Consumer, TopicPartition

    from tally.sources.client import librdkafka
    from tally.sources.kafka import end_offsets

    ends = end_offsets(topic)
    consumer = Consumer({**librdkafka(), "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    times: dict[int, list[int]] = {partition: [] for partition in ends}
    while any(len(times[p]) < ends[p] for p in ends):
        for message in consumer.consume(20_000, 1.0):
            times[message.partition()].append(message.timestamp()[1])
    consumer.close()
    return times
