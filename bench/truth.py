"""What the numbers must be, in plain Python from the producer's own record of what it sent."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tally.demo.truth import read_truth

MINUTE = 60_000
Windows = dict[tuple[int, str], tuple[int, float]]


def windows(truth: Path) -> tuple[Windows, Counter[str]]:
    """Rides and takings per minute and vendor, each ride once; and how many records of each class were sent."""
    found: dict[tuple[int, str], list[float]] = defaultdict(list)
    classes: Counter[str] = Counter()
    for sent in read_truth(truth):
        classes[sent.kind] += 1
        if sent.kind in ("good", "late") and sent.event_time_ms is not None:
            start = sent.event_time_ms - sent.event_time_ms % MINUTE
            found[start, sent.fields["vendor_id"]].append(float(sent.fields["total_amount"]))
    return {key: (len(values), sum(values)) for key, values in found.items()}, classes


def late(truth: Path, batches: Sequence[dict[str, Any]], topic: str, lateness_ms: int, *, shared: bool) -> int:
    """How many valid rides a stream with these micro-batches must drop; the watermark is worked out here.

    `shared`: it is the topic's, of which no partition was silent.
    """
    index: dict[int, tuple[list[int], list[int]]] = {}
    for number, batch in enumerate(batches):
        for partition, (start, _) in batch["ranges"][topic].items():
            starts, numbers = index.setdefault(int(partition), ([], []))
            starts.append(start)
            numbers.append(number)
    newest, events = [dict.fromkeys(index, 0) for _ in batches], []
    for sent in read_truth(truth):
        if sent.kind.startswith("bad") or sent.event_time_ms is None:
            continue
        starts, numbers = index[sent.partition]
        number = numbers[bisect_right(starts, sent.offset) - 1]
        newest[number][sent.partition] = max(newest[number][sent.partition], sent.event_time_ms)
        if sent.kind != "duplicate":
            events.append((number, sent.event_time_ms))
    watermarks, mark, seen = [], 0, dict.fromkeys(index, 0)
    for tops in newest:
        watermarks.append(mark)  # in force while a batch runs: what the batches before it have seen
        seen = {partition: max(seen[partition], top) for partition, top in tops.items()}
        mark = max(mark, (min if shared else max)(seen.values()) - lateness_ms)
    # By Spark a row is late by the watermark of the batch before: it moves it on only after a batch is done.
    by = watermarks if shared else [0, *watermarks]
    return sum(time <= by[number] for number, time in events)
