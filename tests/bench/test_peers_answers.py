"""A wrong answer has no time: each way to be wrong is found, and the truth is that of plain Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest

from bench.peers import rides
from bench.peers.answers import judge

COUNT = 30_000
Rows = dict[tuple[int, int], tuple[int, float]]


def in_plain_python(*, without_late: bool) -> Rows:
    """Rides and takings per minute and vendor, and late by the newest ride of all that were sent before."""
    found: dict[tuple[int, int], list[float]] = defaultdict(list)
    newest = 0
    for part in rides.rides(COUNT):
        for vendor, cents, ts in zip(part["vendor"].tolist(), part["cents"].tolist(), part["ts"].tolist(), strict=True):
            newest = max(newest, ts)
            start = ts - ts % rides.MINUTE
            if not (without_late and start + rides.MINUTE + rides.LATENESS <= newest):
                found[start, vendor].append(cents)
    return {key: (len(values), sum(values) / 100) for key, values in found.items()}


def table(rows: Rows) -> pa.Table:
    return pa.table(
        {
            "w": [w for w, _ in rows],
            "k": [k for _, k in rows],
            "n": [n for n, _ in rows.values()],
            "amount": [amount for _, amount in rows.values()],
        }
    )


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rides.truth(COUNT, "vendor", tmp_path_factory.mktemp("truth"))


def test_all_rides_are_a_right_answer_and_so_are_all_but_the_late(truth: Path) -> None:
    everything, in_time = in_plain_python(without_late=False), in_plain_python(without_late=True)
    assert judge(table(everything), truth).wrong == ""
    found = judge(table(in_time), truth)
    assert found.wrong == ""
    assert found.late == COUNT - sum(n for n, _ in in_time.values()) > 100


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda n, amount: (n - 1, amount), "1 rows that lack what was not late"),
        (lambda n, amount: (n + 1, amount), "1 rows that count too much"),
        (lambda n, amount: (n, amount + 0.01), "1 wrong sums"),
    ],
)
def test_a_row_that_is_wrong_is_told(truth: Path, fault: object, said: str) -> None:
    rows = in_plain_python(without_late=False)
    newest = max(rows)
    rows[newest] = fault(*rows[newest])  # type: ignore[operator]
    assert judge(table(rows), truth).wrong == said


def test_rows_too_many_are_told(truth: Path) -> None:
    rows = in_plain_python(without_late=False)
    assert judge(table({**rows, (0, 1): (1, 1.0)}), truth).wrong == "1 unknown rows"
    first = {key: rows[key] for key in [min(rows)]}
    assert "1 doubles" in judge(pa.concat_tables([table(rows), table(first)]), truth).wrong


def test_a_row_that_is_missing_is_told(truth: Path) -> None:
    rows = in_plain_python(without_late=False)
    del rows[max(rows)]
    assert judge(table(rows), truth).wrong == "1 rows that lack what was not late"


def test_fewer_rides_are_the_first_ones_of_more() -> None:
    few, more = next(rides.rides(10)), next(rides.rides(20))
    assert {name: values.tolist() for name, values in few.items()} == {
        name: values[:10].tolist() for name, values in more.items()
    }
