"""Many missed micro-batches are taken in one go, and each event is judged by the watermark of its own."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.control.ledger import NEAR, MicroBatch
from tally.speed.shared.spans import Span, numbers, spans


def batches(sizes: list[dict[int, int]]) -> list[MicroBatch]:
    """Micro-batches of a topic of two partitions, of so many offsets each, with a watermark of ten a number."""
    reached, found = {0: 5, 1: 0}, []
    for number, size in enumerate(sizes):
        ranges = {p: (reached[p], reached[p] + size.get(p, 0)) for p in reached}
        reached = {p: to for p, (_, to) in ranges.items()}
        found.append(
            MicroBatch(
                pipeline="topic rides", version="shared", generation=1, batch=number, ranges={"rides": ranges},
                late_watermark=10 * number, watermark=10 * number + 10, rows=0, delta_version=-1, committed_at=0,
                ids=NEAR,
            )
        )  # fmt: skip
    return found


def places_of(batch: MicroBatch) -> list[tuple[int, int]]:
    return [(p, offset) for p, (start, to) in sorted(batch.ranges["rides"].items()) for offset in range(start, to)]


SIZES = st.lists(st.fixed_dictionaries({0: st.integers(0, 4), 1: st.integers(0, 4)}), min_size=1, max_size=12)


@settings(deadline=None)
@given(SIZES, st.integers(1, 20), st.sets(st.integers(0, 11)))
def test_spans_hold_each_micro_batch_once_in_order(sizes: list[dict[int, int]], limit: int, ends: set[int]) -> None:
    given_ = batches(sizes)
    found = list(spans("rides", given_, limit, sorted(ends)))
    assert [batch for span in found for batch in span.batches] == given_
    for span in found:
        inside = [batch.batch for batch in span.batches[:-1]]
        assert not ends.intersection(inside)
        assert len(span.batches) == 1 or sum(to - start for start, to in span.ranges.values()) <= limit
        assert span.planned.batch == span.last.batch
    for one, other in pairwise(found):
        assert {p: to for p, (_, to) in one.ranges.items()} == {p: start for p, (start, _) in other.ranges.items()}


@settings(deadline=None)
@given(SIZES)
def test_each_place_has_the_watermark_of_the_micro_batch_that_held_it(sizes: list[dict[int, int]]) -> None:
    given_ = batches(sizes)
    places = [(partition, offset, batch.late_watermark) for batch in given_ for partition, offset in places_of(batch)]
    partitions, offsets, wanted = (np.array([place[at] for place in places], dtype=np.int64) for at in range(3))
    span = Span("rides", given_)
    assert span.late()[numbers(span.edges(), partitions, offsets)].tolist() == wanted.tolist()
    ends = [end for _, end in span.ranges.values()]
    assert numbers(span.edges(), np.array([0, 0, 1, 2]), np.array([4, ends[0], ends[1], 0])).tolist() == [-1] * 4


@settings(deadline=None)
@given(SIZES, st.randoms(use_true_random=False))
def test_events_are_told_apart_by_their_micro_batches(sizes: list[dict[int, int]], chance: random.Random) -> None:
    given_ = batches(sizes)
    places = [place for batch in given_ for place in places_of(batch)]
    places += [(0, 1), (1, 999)]
    chance.shuffle(places)
    events = pa.table({"_partition": [p for p, _ in places], "_offset": [at for _, at in places]})
    found = list(Span("rides", given_).one_by_one(events))
    assert [batch for batch, _ in found] == given_
    for batch, held in found:
        assert sorted(zip(*(column.to_pylist() for column in held.columns), strict=True)) == places_of(batch)


def test_spark_is_told_the_same(spark: SparkSession) -> None:
    span = Span("rides", batches([{0: 2}, {}, {0: 1, 1: 3}, {1: 2}]))
    places = spark.createDataFrame([(0, 5), (0, 6), (0, 7), (1, 0), (1, 2), (1, 3)], "p int, o bigint")
    found = places.select(span.late_at(F.col("p"), F.col("o"))).collect()
    assert [row[0] for row in found] == [0, 0, 20, 20, 20, 30]
