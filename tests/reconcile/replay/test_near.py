"""Of a shared stream's copies the replay tells what its stream did, whatever the micro-batches, clocks and restarts."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuts import MINUTE, ORDERS, T0, cut, micro_batch

from tally.base.duration import millis
from tally.control.ledger import NEAR, MicroBatch
from tally.reconcile.replay.holders import repeated
from tally.speed.shared.ids import Ids

LATENESS = millis(ORDERS.lateness)
SCHEMA = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64()), ("_id", pa.int64()), ("_time", pa.int64())])
Place = tuple[int, int]
Event = tuple[int, int, int, int]  # partition, offset, id, microseconds


def drawn(chance: random.Random, begun: list[int], watermark: int) -> list[Event]:
    """Some events of each partition, late ones among them, few ids, out of order."""
    found: list[Event] = []
    for partition, offset in enumerate(begun):
        for number in range(chance.randrange(4)):
            time = chance.randrange(watermark - MINUTE // 2, watermark + 4 * MINUTE) * 1000 + chance.randrange(1000)
            found.append((partition, offset + number, chance.randrange(3), time))
    return found


@pytest.mark.parametrize("seed", range(200))
def test_the_replay_leaves_out_the_copies_that_the_stream_left_out(seed: int) -> None:
    chance = random.Random(seed)
    begun, watermark, ids = [0] * chance.choice([1, 2, 12]), T0, Ids(LATENESS)
    batches, events, left_out = list[MicroBatch](), dict[Place, tuple[int, Event]](), set[Place]()
    for number in range(chance.randrange(1, 7)):
        some, late = drawn(chance, begun, watermark), watermark
        arrived = [dict(zip(SCHEMA.names, one, strict=True)) for one in chance.sample(some, len(some))]
        out, seen = ids.told_apart(pa.Table.from_pylist(arrived, SCHEMA), late)
        ids.put(seen)
        watermark = max(watermark, max((one[3] // 1000 for one in some), default=0) - chance.choice([1, 2]) * LATENESS)
        ids.forget(watermark)
        if chance.random() < 0.3:  # another driver goes on with what is kept
            kept, ids = ids.held(), Ids(LATENESS)
            ids.restore([kept], watermark)
        left_out |= {(row["_partition"], row["_offset"]) for row in out.to_pylist()}
        events |= {one[:2]: (number, one) for one in some if one[3] > late * 1000}
        ranges = {p: (start, start + sum(one[0] == p for one in some)) for p, start in enumerate(begun)}
        begun = [to for _, to in ranges.values()]
        batches.append(replace(micro_batch(number, ranges, watermark=watermark, late=late), ids=NEAR))
    follow = repeated(cut(*batches), ORDERS)
    for key in range(3):
        copies = [(number, p, offset, time) for number, (p, offset, one, time) in events.values() if one == key]
        for partition, offset, again in follow(copies):
            assert again == ((partition, offset) in left_out), (partition, offset)


@pytest.mark.parametrize("apart", [1, LATENESS + 1])
def test_an_id_may_have_any_number_of_copies(apart: int) -> None:
    """A producer that gives all of its events one id; to look at them two by two would take hours."""
    count = 100_000
    held = cut(replace(micro_batch(0, {0: (0, count)}, watermark=T0, late=0), ids=NEAR))
    told = repeated(held, ORDERS)([(0, 0, offset, (T0 + offset * apart) * 1000) for offset in range(count)])
    assert sum(again for _, _, again in told) == (0 if apart > LATENESS else count - 1)
