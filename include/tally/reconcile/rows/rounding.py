"""How far apart two values made of the same events may lie: floating-point sums in another order, and nothing else.

The sum of n numbers is off by at most n * 2^-53 of the sum of their sizes, whatever the order; two such sums differ by
at most twice that. What the sizes are is told by the events' own floating columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType

from tally.base.settings import settings

STEP = 2.0**-52
# A FLOAT has 24 bits: two that were rounded from neighbouring DOUBLEs may be so far apart.
FLOAT_STEP = 2.0**-22
APART = float("inf")  # no rounding: another value, a missing one, or one that is no number
Measure = Callable[[Column, Column], Column]


def most(events: int, ceiling: float | None = None) -> float:
    """The share of its size by which a sum of so many events may differ from itself in another order.

    The ceiling is the setting's, which whoever asks of thousands of slots reads once.
    """
    return min(max(events, 1) * STEP, settings().tolerance if ceiling is None else ceiling)


def relative(a: Column, b: Column) -> Column:
    return F.try_divide(F.abs(a - b), F.greatest(F.abs(a), F.abs(b)))


def absolute(a: Column, b: Column) -> Column:
    return F.abs(a - b)


def distance(a: Column, b: Column, kind: DataType, measure: Measure) -> Column:
    """How far apart two values are: 0 where they are equal, APART where they differ by more than floating numbers."""
    if isinstance(kind, DoubleType | FloatType):
        return of_numbers(a, b, kind, measure)
    if isinstance(kind, StructType):
        fields = [distance(a[f.name], b[f.name], f.dataType, measure) for f in kind.fields]
        return where_both(a, b, largest(fields))
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        apart = F.array_max(F.zip_with(a, b, lambda x, y: distance(x, y, inner, measure)))
        return where_both(a, b, F.when(F.size(a) != F.size(b), APART).otherwise(F.coalesce(apart, F.lit(0.0))))
    if isinstance(kind, MapType):
        entry = StructType([StructField("key", kind.keyType), StructField("value", kind.valueType)])
        left, right = (F.array_sort(F.map_entries(side)) for side in (a, b))
        return distance(left, right, ArrayType(entry), measure)
    return F.when(a.eqNullSafe(b), 0.0).otherwise(APART)


def of_numbers(a: Column, b: Column, kind: DataType, measure: Measure) -> Column:
    """NaN and Infinity are near nothing but themselves."""
    x, y = a.cast("double"), b.cast("double")
    finite = (F.abs(x) < APART) & (F.abs(y) < APART)
    apart = measure(x, y)
    if isinstance(kind, FloatType):
        apart = F.when(relative(x, y) <= FLOAT_STEP, STEP * (1.0 if measure is relative else F.abs(x))).otherwise(apart)
    return F.when(a.eqNullSafe(b), 0.0).when(finite, apart).otherwise(APART)


def where_both(a: Column, b: Column, apart: Column) -> Column:
    return F.when(a.isNull() & b.isNull(), 0.0).when(a.isNull() | b.isNull(), APART).otherwise(apart)


def largest(distances: list[Column]) -> Column:
    return reduce(lambda a, b: F.greatest(a, b), distances, F.lit(0.0))


def near(apart: Column, apart_by: Column, limit: Column, scale: Column) -> Column:
    """Whether a relative and an absolute distance are within the limit; sums that cancel are measured by the scale.

    What is APART is near nothing, however large the numbers are that are summed: Infinity times anything is Infinity.
    """
    return (apart < APART) & (apart_by < APART) & ((apart <= limit) | (apart_by <= limit * scale))


def floats(kind: DataType) -> bool:
    """Whether a measure is, or has in it, a floating-point number."""
    if isinstance(kind, StructType):
        return any(floats(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return floats(kind.elementType)
    if isinstance(kind, MapType):
        return floats(kind.keyType) or floats(kind.valueType)
    return isinstance(kind, DoubleType | FloatType)
