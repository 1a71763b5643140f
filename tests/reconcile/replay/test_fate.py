"""Which micro-batch held an offset, and which offsets two of them did, by the ledger alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from cuts import cut, micro_batch

from tally.reconcile.replay.copies import batches_of
from tally.reconcile.replay.holders import doubled, intervals


def test_offsets_are_told_by_partition_in_order_with_the_place_of_their_micro_batch() -> None:
    known = cut(
        micro_batch(4, {0: (10, 20), 1: (0, 5)}),
        micro_batch(5, {0: (0, 10), 1: (5, 5)}),
        micro_batch(6, {0: (20, 30)}),
    )
    assert intervals(known, "orders") == {0: [(0, 10, 1), (10, 20, 0), (20, 30, 2)], 1: [(0, 5, 0)]}
    assert intervals(known, "payments") == {}


@pytest.mark.parametrize(
    ("parts", "twice"),
    [
        ([(0, 10, 0), (10, 20, 1)], []),
        ([(0, 10, 0), (9, 20, 1)], [(9, 10)]),
        ([(9, 20, 0), (0, 10, 1)], [(9, 10)]),
        ([(0, 30, 0), (5, 10, 1), (20, 40, 2)], [(5, 10), (20, 30)]),
        ([(0, 10, 0), (0, 10, 1), (0, 10, 2)], [(0, 10)]),
        ([(0, 10, 0), (5, 10, 1), (10, 15, 2), (10, 15, 3)], [(5, 15)]),
        ([], []),
    ],
)
def test_what_more_than_one_micro_batch_held_is_found(
    parts: list[tuple[int, int, int]], twice: list[tuple[int, int]]
) -> None:
    assert doubled(parts) == twice


def test_an_offset_is_looked_up_in_its_own_partition() -> None:
    known = {
        0: (np.array([0, 10, 30]), np.array([10, 20, 40]), np.array([7, 8, 9])),
        2: (np.array([5]), np.array([6]), np.array([1])),
    }
    partitions = np.array([0, 0, 0, 0, 0, 0, 1, 2, 2, 2])
    offsets = np.array([0, 9, 10, 19, 20, 39, 5, 4, 5, 6])
    assert batches_of(known, partitions, offsets).tolist() == [7, 7, 8, 8, -1, 9, -1, -1, 1, -1]
