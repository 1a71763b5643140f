"""Packed micro-batches are those that were packed, in whatever order they read their partitions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tally.control.ledger import HELD, NEAR, MicroBatch
from tally.control.packed_ledger import MOST, in_rows, packed, unpacked


def history(seed: int, count: int, partitions: int = 4) -> list[MicroBatch]:
    """Micro-batches a second apart of two topics, with partitions that come, go, turn back and change places."""
    chance, found = random.Random(seed), list[MicroBatch]()
    ends, mark, now = dict[tuple[str, int], int](), 1_767_600_000_000, 1_767_600_000_000
    for batch in range(count):
        ranges: dict[str, dict[int, tuple[int, int]]] = {}
        for topic in ("rides", "fares")[: chance.choice((1, 2))]:
            ranges[topic] = {}
            for partition in chance.sample(range(partitions), chance.randrange(partitions + 1)):
                start = max(0, ends.get((topic, partition), chance.randrange(10**9)) + chance.choice((0, 0, 0, 5, -3)))
                ends[topic, partition] = start + chance.randrange(200)
                ranges[topic][partition] = start, ends[topic, partition]
        late, mark, now = mark, mark + chance.choice((0, 1000, 987)), now + chance.randrange(-5, 2000)
        found.append(
            MicroBatch(
                pipeline="topic rides", version="shared", generation=2, batch=batch + 7, ranges=ranges,
                late_watermark=late, watermark=mark, rows=chance.randrange(50), committed_at=now,
                delta_version=chance.choice((-1, batch)), ids=chance.choice((HELD, NEAR)),
            )
        )  # fmt: skip
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_was_packed_comes_back(seed: int) -> None:
    entries = history(seed, 1 + seed * 5)
    found = unpacked(packed(entries), "topic rides", "shared", 2)
    assert found == entries
    orders = [[list(parts) for parts in one.ranges.values()] for one in entries]
    assert [[list(parts) for parts in one.ranges.values()] for one in found] == orders, "in the order of their reading"


def test_a_row_holds_one_generation_without_gaps() -> None:
    entries = [replace(one, ranges={}) for one in history(1, 10)]
    later = [replace(one, generation=3) for one in entries]
    rows = list(in_rows([*entries[:4], *entries[5:], *later]))
    assert rows == [entries[:4], entries[5:], later]
    assert list(in_rows([])) == [] and list(in_rows(entries[:1])) == [entries[:1]]
    many = [replace(entries[0], batch=batch) for batch in range(2 * MOST + 1)]
    assert list(map(len, in_rows(many))) == [MOST, MOST, 1]


def test_a_second_of_a_stream_takes_some_bytes() -> None:
    chance, entries, to, mark = random.Random(1), list[MicroBatch](), [10**9] * 4, 1_767_600_000_000
    for batch in range(MOST):
        before = to
        to, late = [end + int(chance.gauss(125, 12)) for end in to], mark
        mark = 1_767_600_000_000 + batch * 1000 + chance.randrange(200)
        ranges = {"rides": {p: (before[p], to[p]) for p in range(4)}}
        entries.append(
            MicroBatch(
                pipeline="topic rides", version="shared", generation=1, batch=batch, ranges=ranges, late_watermark=late,
                watermark=mark, rows=0, delta_version=-1, committed_at=mark + chance.randrange(2000), ids=NEAR,
            )
        )  # fmt: skip
    assert len(packed(entries)) < 10 * MOST
