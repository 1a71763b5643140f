"""Manifests grow coarse without losing a row, and a range grows to whole cells of every commit that it meets."""

from __future__ import annotations

import json
import random

import pytest

from tally.sources.witnesses.checksum import HOUR
from tally.sources.witnesses.claims import EVERYTHING, widened
from tally.sources.witnesses.manifest import GRAINS, NONE, Manifest, Sums

DAY = 24 * HOUR


def hours(numbers: range, partitions: int = 2) -> Manifest:
    chance = random.Random(1)
    cells = {
        (partition, number): Sums(chance.randrange(1, 99), 5, 6, chance.getrandbits(64), chance.getrandbits(64))
        for number in numbers
        for partition in range(partitions)
    }
    return Manifest(cells=cells)


@pytest.mark.parametrize(("most", "grain"), [(2000, 1), (1999, 24), (86, 24), (85, 768), (4, 0)])
def test_a_manifest_has_the_finest_cells_that_it_may_have(most: int, grain: int) -> None:
    whole = hours(range(-100, 900))
    coarse = whole.at_most(most)
    assert coarse.grain == grain and (len(coarse.cells) <= most or not grain)
    assert coarse.partitions == whole.partitions and coarse.count == whole.count
    assert Manifest.from_words(json.loads(json.dumps(coarse.as_words()))) == coarse


@pytest.mark.parametrize("grain", GRAINS)
def test_an_hour_before_1970_lies_in_the_cell_that_took_its_rows(grain: int) -> None:
    fine = hours(range(-30, 800))
    coarse = next(one for most in (2000, 1000, 10, 0) if (one := fine.at_most(most)).grain == grain)
    for hour in range(-30, 800):
        assert (0, coarse.cell_of(hour)) in coarse.cells
        if grain:
            start, end = coarse.range_of(coarse.cell_of(hour))
            assert start <= hour * HOUR < end


def test_a_range_grows_to_whole_cells_of_each_commit() -> None:
    fine, coarse = hours(range(0, 48)), Manifest(grain=24, cells={(0, 0): NONE, (0, 5): NONE})
    assert widened([(50 * HOUR, 51 * HOUR)], [fine, coarse]) == [(50 * HOUR, 51 * HOUR)], "no cell is met"
    assert widened([(HOUR, 2 * HOUR)], [fine]) == [(HOUR, 2 * HOUR)]
    assert widened([(HOUR, 2 * HOUR)], [fine, coarse]) == [(0, DAY)], "the other day is left alone"
    assert widened([(HOUR, 2 * HOUR)], [fine, Manifest(grain=0, cells={(0, 0): NONE})]) == EVERYTHING


def test_sums_do_not_leave_64_bits() -> None:
    most = Sums(1, 5, 5, (1 << 64) - 1, 1 << 63)
    assert most.plus(most) == Sums(2, 5, 5, (1 << 64) - 2, 0)
    assert most.plus(NONE) == most
