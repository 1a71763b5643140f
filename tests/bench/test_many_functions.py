"""What many functions must give over a live topic, their ages, and that no two of them are the same."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bench.peers.engines.live import Commit
from bench.peers.following import ages_of, has_all, lives
from bench.peers.functions import Function, functions
from bench.peers.sales import differences, expected, wrong_rows

T0 = 1_767_600_000_000
PLAIN: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "sales": len,
    "takings": lambda rows: sum(row["amount"] for row in rows),
    "largest": lambda rows: max(row["amount"] for row in rows),
    "fewest": lambda rows: min(row["pieces"] for row in rows),
    "pieces": lambda rows: sum(row["pieces"] for row in rows),
    "mean": lambda rows: sum(row["amount"] for row in rows) / len(rows),
    "dear": lambda rows: sum(row["amount"] > 40 for row in rows),
    "most": lambda rows: max(row["pieces"] for row in rows),
}


def sold(count: int = 600) -> list[dict[str, Any]]:
    chance, offsets, found = random.Random(3), [0, 0], []
    for number in range(count):
        partition = chance.randrange(2)
        found.append(
            {
                "partition": partition, "offset": offsets[partition], "stamp": T0 + number * 100,
                "shop": chance.randrange(3), "city": chance.randrange(4), "amount": chance.randrange(8000) / 100,
                "pieces": chance.randrange(12), "at": T0 + number * 100 - chance.randrange(90_000),
            }
        )  # fmt: skip
        offsets[partition] += 1
    return found


def in_plain_python(sales: list[dict[str, Any]], function: Function, late: Callable[[dict[str, Any]], int]) -> pa.Table:
    groups = defaultdict(list)
    for sale in sales:
        start = sale["at"] - sale["at"] % function.window.step
        while start > sale["at"] - function.window.size:
            if sale["pieces"] > function.least and start + function.window.size > late(sale):
                groups[start, sale[function.key]].append(sale)
            start -= function.window.step
    columns = {m.name: [PLAIN[m.name](rows) for rows in groups.values()] for m in function.measures}
    return pa.table({"w": [w for w, _ in groups], "k": [k for _, k in groups], **columns})


@pytest.mark.parametrize("function", functions(16), ids=lambda one: one.name)
def test_a_function_over_sales_gives_what_plain_python_gives(function: Function) -> None:
    sales = sold()
    wanted = in_plain_python(sales, function, lambda sale: -1)
    assert wanted.num_rows > 5
    assert differences(expected(pa.Table.from_pylist(sales), function, None), wanted, function) == 0


def test_what_was_late_in_its_micro_batch_is_left_out() -> None:
    sales, (function, *_) = sold(), functions(1)
    batches = [(0, 0, -1), (1, 0, -1), (0, 100, T0 + 9_000), (1, 120, T0 + 9_000)]

    def late(sale: dict[str, Any]) -> int:
        return T0 + 9_000 if sale["offset"] >= (100, 120)[sale["partition"]] else -1

    found = expected(pa.Table.from_pylist(sales), function, batches)
    assert differences(found, in_plain_python(sales, function, late), function) == 0
    assert differences(found, in_plain_python(sales, function, lambda sale: -1), function) > 0


def test_a_row_that_differs_is_told() -> None:
    sales, chosen = pa.Table.from_pylist(sold()), functions(2)
    rows = {one.name: expected(sales, one, None) for one in chosen}
    assert wrong_rows(sales, rows, {}, chosen) == ""
    rows["many_001"] = rows["many_001"].slice(1)
    assert wrong_rows(sales, rows, {}, chosen) == "1 rows of many_001 differ"


def test_no_two_of_64_functions_are_the_same() -> None:
    chosen = functions(64)
    assert len({(one.window, one.key, one.least, one.measures) for one in chosen}) == 64


def test_ages_by_offsets_and_by_the_newest_time_are_those_of_the_first_commit_with_a_sale() -> None:
    sales = pa.table({"partition": [0, 1, 0, 1], "offset": [0, 0, 1, 1], "stamp": [1000, 2000, 3000, 4000]})
    ranges = [{0: (0, 1), 1: (0, 1)}, {0: (1, 1), 1: (1, 1)}, {0: (1, 2), 1: (1, 2)}]
    ours = [Commit(at=at, ranges=found) for at, found in zip((2500, 3500, 5000), ranges, strict=True)]
    assert sorted(ages_of(ours, sales, since=0)) == [0.5, 1.0, 1.5, 2.0]
    theirs = [Commit(at=2500, newest=2000), Commit(at=5000, newest=4000)]
    assert sorted(ages_of(theirs, sales, since=0)) == [0.5, 1.0, 1.5, 2.0]
    assert list(ages_of(theirs, sales, since=3.5)) == [1.0]
    told = lives({"a": ours, "b": []}, sales, began=1.0, since=0)
    assert (told["live"], told["worst"], "all_live_seconds" in told) == (1, 2.0, False)


def test_who_lacks_the_last_sale_has_not_caught_up() -> None:
    sales = pa.table({"partition": [0, 0], "offset": [0, 1], "stamp": [1000, 2000], "pieces": [5, 5]})
    (function,) = functions(1)
    assert not has_all([], sales, function)
    assert not has_all([Commit(at=1, ranges={0: (0, 1)})], sales, function)
    assert has_all([Commit(at=1, ranges={0: (0, 1)}), Commit(at=2, ranges={0: (1, 2)})], sales, function)
    assert not has_all([Commit(at=1, newest=1999)], sales, function)
    assert has_all([Commit(at=1, newest=2000)], sales, function)
