"""Thousands of micro-batches as one row of the lake's ledger table: nothing of them is lost, and each takes some bytes.

What a row keeps is a document of columns, compressed. Offsets and times grow from one micro-batch to the next, so each
column holds by how much; where a partition goes on from is most often where it ended, which is a nought.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from tally.control.micro_batch import MicroBatch, Ranges

# Micro-batches of a row. A reader unpacks whole rows, 30 ms of CPU each; twice as many would compress no better.
MOST = 4096
GROWING = ("batch", "late_watermark", "watermark", "delta_version", "committed_at")
PLAIN = ("rows", "ids")
Shape = list[tuple[str, list[int]]]  # topics, and partitions in the order in which they were read


def packed(entries: Sequence[MicroBatch]) -> bytes:
    """Entries of one stream's generation, in their order."""
    shapes: list[Shape] = []
    ends = dict[tuple[str, int], int]()
    which, skips, lengths = list[int](), list[int](), list[int]()
    for entry in entries:
        shape = [(topic, list(parts)) for topic, parts in entry.ranges.items()]
        if shape not in shapes:
            shapes.append(shape)
        which.append(shapes.index(shape))
        for topic, parts in entry.ranges.items():
            for partition, (start, to) in parts.items():
                skips.append(start - ends.get((topic, partition), 0))
                lengths.append(to - start)
                ends[topic, partition] = to
    document: dict[str, Any] = {name: steps(getattr(entry, name) for entry in entries) for name in GROWING}
    document |= {"shapes": shapes, "shape": which, "skips": skips, "lengths": lengths}
    document |= {name: [getattr(entry, name) for entry in entries] for name in PLAIN}
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)


def unpacked(data: bytes, pipeline: str, version: str, generation: int) -> list[MicroBatch]:
    """What was packed, as entries of a stream."""
    told = json.loads(zlib.decompress(data))
    grown = {name: list(accumulate(told[name])) for name in GROWING}
    plain = {name: told[name] for name in PLAIN}
    found = []
    for at, ranges in enumerate(ranges_of(told)):
        values = {name: column[at] for name, column in (grown | plain).items()}
        found.append(MicroBatch(pipeline=pipeline, version=version, generation=generation, ranges=ranges, **values))
    return found


def ranges_of(told: dict[str, Any]) -> Iterator[Ranges]:
    """The ranges of each micro-batch of a document."""
    pairs = zip(told["skips"], told["lengths"], strict=True)
    ends = dict[tuple[str, int], int]()
    for which in told["shape"]:
        ranges: Ranges = {}
        for topic, partitions in told["shapes"][which]:
            ranges[topic] = {}
            for partition in partitions:
                skip, length = next(pairs)
                start = ends.get((topic, partition), 0) + skip
                ends[topic, partition] = start + length
                ranges[topic][partition] = start, start + length
        yield ranges


def in_rows(entries: Sequence[MicroBatch]) -> Iterator[Sequence[MicroBatch]]:
    """Entries in their order, cut into what one row may hold: one generation's, with no number left out."""
    first = 0
    for at, (one, following) in enumerate(pairwise(entries), 1):
        follows = (following.generation, following.batch) == (one.generation, one.batch + 1)
        if not follows or at - first == MOST:
            yield entries[first:at]
            first = at
    if entries:
        yield entries[first:]


def steps(values: Iterable[int]) -> list[int]:
    """The first value, then by how much each one is above the one before it."""
    found, last = [], 0
    for value in values:
        found.append(value - last)
        last = value
    return found
