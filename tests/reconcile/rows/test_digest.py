"""A digest is the same for sums of the same events in another order, also for a value on the edge of its grid."""

from __future__ import annotations

import math
import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.reconcile.rows.digest import GRID, PARTED, Digest, alike, same
from tally.reconcile.rows.hashes import TEXTS, row_hash


def text(spark: SparkSession, values: list[float]) -> str:
    rows = spark.createDataFrame([(at, value) for at, value in enumerate(values)], "k INT, v DOUBLE")
    sums = rows.agg(*(F.sum(row_hash(rows, of)).alias(name) for name, of in TEXTS.items())).collect()[0]
    return Digest(rows=len(values), **{name: str(sums[name]) for name in TEXTS}, last_end=0).text


def test_sums_in_another_order_digest_alike(spark: SparkSession) -> None:
    """Each value's eleventh digit is a 5: the last bit decides which ten digits it is written with."""
    chance = random.Random(3)
    edges = [float(f"{chance.randrange(10**9, 10**10)}.5") / 10**at for at in range(1, 9) for _ in range(12)]
    above = [math.nextafter(value, math.inf) for value in edges]
    below = [math.nextafter(value, -math.inf) for value in edges]
    one, other = text(spark, above), text(spark, below)
    assert one.partition(GRID)[0] != other.partition(GRID)[0], "the edges are none"
    assert alike(one, other) and not same(one, other)
    assert not alike(one, text(spark, [above[0] * (1 + 1e-8), *above[1:]])), "another value"
    large = [1e308, -1.7e308, math.inf, math.nan, -0.0]
    assert same(text(spark, large), text(spark, [*large[:4], 0.0])) is False and alike(
        text(spark, large), text(spark, [*large[:4], 0.0])
    )


@pytest.mark.parametrize(
    ("sealed", "now", "is_same"),
    [
        (f"7{PARTED}9", f"7{GRID}8{PARTED}9", True),
        (f"7{PARTED}9", f"7{GRID}8{PARTED}10", False),
        ("7", f"7{GRID}8{PARTED}9", True),
        ("6", f"7{GRID}8{PARTED}9", False),
    ],
)
def test_a_seal_of_an_older_version_is_still_known(sealed: str, now: str, is_same: bool) -> None:
    assert same(now, sealed) is is_same
