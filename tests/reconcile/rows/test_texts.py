"""Floating numbers in the three texts of a digest: written without a JVM as Spark writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from tally.reconcile.rows import texts
from tally.reconcile.rows.hashes import Text, in_bits, in_decimals, whole

COUNT = 1500
Written = Callable[[Any, Any], Iterator[texts.Lot]]


def numbers(chance: np.random.Generator) -> Any:
    """Any bits, money, sums of money, few digits, few bits, powers of two, large whole ones, subnormal ones, edges."""
    any_bits = chance.integers(-(2**63), 2**63, COUNT, dtype="int64").view("float64")
    money = np.round(chance.random(COUNT) * 10.0 ** chance.integers(0, 12, COUNT), 2)
    sums = np.cumsum(np.round(chance.random(COUNT) * 100, 2)) * chance.choice([1, -1], COUNT)
    few = chance.integers(1, 1000, COUNT) * 10.0 ** chance.integers(-30, 30, COUNT)
    halves = chance.integers(0, 2**20, COUNT) / 2.0 ** chance.integers(0, 40, COUNT)
    powers = 2.0 ** chance.integers(-1074, 1023, COUNT)
    whole_ones = np.exp2(chance.random(COUNT) * 70).round()
    tiny = chance.integers(0, 2**53, COUNT, dtype="int64").view("float64")
    edges = [0.0, -0.0, np.nan, np.inf, -np.inf, 2e-3, 2e23, 1e23, 5e-324, 1.7976931348623157e308, 1e7, 1e-3, 1e300]
    edges += [9999999.999999998, -1e300, 9.9999999995, 99999999995e-10, 1.0, 10.0, 2.0**53, 2.0**63, 2.0**62]
    return np.concatenate([any_bits, money, sums, few, halves, powers, whole_ones, tiny, edges])


def by_spark(spark: SparkSession, values: Any, kind: DataType, text: Text) -> list[str]:
    frame = spark.createDataFrame(pa.table({"at": np.arange(len(values)), "v": values}))
    return [row[0] for row in frame.orderBy("at").select(F.concat(F.lit("="), text(F.col("v"), kind))).collect()]


def by_us(values: Any, write: Written) -> list[str]:
    found = [""] * len(values)
    for mine, table in write(values, np.zeros(len(values), dtype=bool)):
        for at, text in zip(mine.tolist(), table, strict=True):
            found[at] = text.tobytes().decode()
    return found


def floats(values: Any, null: Any) -> Iterator[texts.Lot]:
    return texts.of_numbers(values, null, significant=24)


@pytest.mark.parametrize(
    ("kind", "text", "write"),
    [
        (DoubleType(), whole, texts.of_numbers),
        (DoubleType(), in_decimals, texts.in_decimals),
        (DoubleType(), in_bits, texts.in_bits),
        (FloatType(), whole, floats),
        (FloatType(), in_decimals, texts.in_decimals),
        (FloatType(), in_bits, texts.in_bits),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that are none, and too large for a FLOAT
def test_each_number_is_written_as_spark_writes_it(spark: SparkSession, kind: Any, text: Text, write: Written) -> None:
    values = numbers(np.random.default_rng(29))
    if isinstance(kind, FloatType):
        bits = np.random.default_rng(31).integers(0, 2**32, COUNT, dtype="uint64").astype("uint32").view("float32")
        values = np.concatenate([values.astype("float32"), bits])
    wanted = by_spark(spark, values, kind, text)
    assert by_us(values.astype("float64"), write) == wanted
