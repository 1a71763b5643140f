"""The declared types as JSON carries them: what Spark reads each as, what is made of that, and which values it has not.

Spark alone would read 200 as the TINYINT -56, the text "17" as a day of 1970 or as five o'clock today, and 1e400 as
Infinity: such values are read as a type that keeps them whole, and looked at, at any depth of a column.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

Test = Callable[[Column, DataType], Column | None]

# Epoch milliseconds lie between 1973 and 5138; smaller numbers are seconds, larger ones micro- or nanoseconds. Before
# 1970 they go back to 1900, as text does.
LEAST_MILLIS, MOST_MILLIS, OLDEST_MILLIS = 100_000_000_000, 100_000_000_000_000, -2_208_988_800_000
# Text has years from 1900 to 9999: one outside what Python's own times can say would stop every job that meets it. On
# the last day of these, only what is no later in UTC: 9999-12-31T23:00-02:00 is a time of the year 10000.
LAST_DAY = r"9999-12-31(?![T ][\d:.]+\s*(Z|UTC|\+[\d:]+)?\s*$)"
DATE_AND_TIME = rf"^\s*(?!{LAST_DAY})(19|[2-9]\d)\d{{2}}-\d{{2}}-\d{{2}}[T ]\d{{2}}:\d{{2}}"
DATE = r"^\s*(19|[2-9]\d)\d{2}-\d{2}-\d{2}\s*$"
# A decimal as text: Spark drops each comma in it, and "1,5" is 15.
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
KEPT_WHOLE = {TimestampType: StringType(), DateType: StringType(), ByteType: ShortType()}


def read_as(kind: DataType, *, as_text: bool = False) -> DataType:
    """The type that keeps what a record says whole, where Spark would make another of it; `as_text`: all as text."""
    if isinstance(kind, ArrayType):
        return ArrayType(read_as(kind.elementType, as_text=as_text))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, read_as(kind.valueType, as_text=as_text))
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, read_as(f.dataType, as_text=as_text)) for f in kind.fields])
    return StringType() if as_text else KEPT_WHOLE.get(type(kind), kind)


def typed(given: Column, kind: DataType) -> Column:
    """What a record says, in its declared type; null where the type has no such value."""
    if read_as(kind) == nullable(kind):
        return given
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(given, lambda one: typed(one, element))
    if isinstance(kind, MapType):
        value = kind.valueType
        return F.transform_values(given, lambda _, one: typed(one, value))
    if isinstance(kind, StructType):
        return F.when(given.isNotNull(), F.struct(*(typed(given[f.name], f.dataType).alias(f.name) for f in kind)))
    if isinstance(kind, TimestampType):
        number = as_number(given)
        # A larger number would overflow and, ANSI mode being on, stop the stream.
        return F.when(number.between(OLDEST_MILLIS, MOST_MILLIS - 1), F.timestamp_millis(number)).when(
            given.rlike(DATE_AND_TIME), given.try_cast("timestamp")
        )
    if isinstance(kind, DateType):
        return F.when(given.rlike(DATE), given.try_cast("date"))
    return given.try_cast(kind)


def as_number(given: Column) -> Column:
    """A time's text as a number of BIGINT, null where it is none.

    A text with a colon never is: it is not tried, for Spark makes an exception, with a message, of each that fails, and
    that takes longer than all else that is done with a record.
    """
    return F.when(~given.contains(":"), given.try_cast("bigint"))


def nullable(kind: DataType) -> DataType:
    """The type with each element, value and field allowed to be null."""
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable(f.dataType)) for f in kind.fields])
    return kind


def anywhere(given: Column, kind: DataType, test: Test) -> Column | None:
    """Whether a value of the column, itself or within it, passes the test; None where no value of its type can."""
    found = test(given, kind)
    inner: Column | None = None
    if isinstance(kind, ArrayType):
        inner = within(given, kind.elementType, test)
    elif isinstance(kind, MapType):
        inner = within(F.map_values(given), kind.valueType, test)
    elif isinstance(kind, StructType):
        inner = either(*(anywhere(given[f.name], f.dataType, test) for f in kind.fields))
    return either(found, inner)


def within(elements: Column, kind: DataType, test: Test) -> Column | None:
    """Whether an element of an array passes the test."""
    if anywhere(F.lit(None), kind, test) is None:
        return None

    def passes(one: Column) -> Column:
        found = anywhere(one, kind, test)
        assert found is not None
        return found

    return F.exists(elements, passes)


def either(*conditions: Column | None) -> Column | None:
    """Whether one of the conditions holds; None where there is none."""
    real = [condition for condition in conditions if condition is not None]
    return reduce(or_, real) if real else None


def time_unit(given: Column, kind: DataType) -> Column | None:
    """A number that is a time, but in no milliseconds."""
    if not isinstance(kind, TimestampType):
        return None
    number = as_number(given)
    seconds = number.between(1 - LEAST_MILLIS, LEAST_MILLIS - 1)
    return seconds | ~number.between(OLDEST_MILLIS, MOST_MILLIS - 1)


def no_such_value(given: Column, kind: DataType) -> Column | None:
    """A value that the declared type has not, or a map that has a key twice: later steps would fail on it."""
    if isinstance(kind, MapType):
        return F.size(F.array_distinct(F.map_keys(given))) != F.size(given)
    return given.isNotNull() & typed(given, kind).isNull() if type(kind) in KEPT_WHOLE else None


def not_finite(given: Column, kind: DataType) -> Column | None:
    """A number too large for its type, which reads as Infinity."""
    return F.abs(given) >= F.lit(float("inf")) if isinstance(kind, FloatType | DoubleType) else None


def no_number(given: Column, kind: DataType) -> Column | None:
    """A decimal, read as text, that is no number, or has an exponent that no decimal has room for."""
    return ~given.rlike(NUMBER) if isinstance(kind, DecimalType) else None
