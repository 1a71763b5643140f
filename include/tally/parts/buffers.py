"""How each aggregate is kept in parts: what of a micro-batch, how two are added up, and as which state Spark has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, FractionalType, LongType

WIDEST = 38  # digits of a DECIMAL
LOW = 32  # bits: 2^31 numbers of so many add up to less than a BIGINT holds


class Add(Enum):
    """What makes one buffer of those of many parts."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MIN_BY = "min_by"
    MAX_BY = "max_by"
    MEAN = "mean"  # of means, each of so many: `by` is the count
    SQUARES = "squares"  # of squared distances from means: `by` is the mean


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One column of parts; `by` is the column that has a say in how it is added up."""

    name: str
    part: Column
    add: Add
    by: str = ""


@dataclass
class Buffers:
    """The buffers of a function's aggregates, each once, however many of its measures are made of it."""

    found: dict[tuple[object, ...], Buffer] = field(default_factory=dict)

    def keep(self, part: Column, add: Add, *of: object, by: str = "") -> str:
        """The name of the buffer that is kept; `of` says what it is made of."""
        buffer = Buffer(name=f"b{len(self.found)}", part=part, add=add, by=by)
        return self.found.setdefault((add, *of), buffer).name

    def counted(self, *names: str) -> str:
        """How many rows have a value in each of these columns."""
        there = [F.col(name).isNotNull() for name in names]
        condition = there[0]
        for one in there[1:]:
            condition &= one
        return self.keep(F.count(F.when(condition, 1)), Add.SUM, "count", *names)

    def summed(self, name: str, kind: DataType) -> Column:
        """The sum of a column, null where it has no value: in a type that no sum of so many parts outgrows."""
        if isinstance(kind, DecimalType):
            part = F.sum(name).cast(DecimalType(WIDEST, kind.scale))
        elif isinstance(kind, LongType):
            part = exact_sum(name)
        elif isinstance(kind, FractionalType):
            part = F.sum(F.col(name).cast("double"))
        else:
            part = F.sum(F.col(name).cast("bigint"))
        return F.col(self.keep(part, Add.SUM, "sum", name))


def exact_sum(name: str) -> Column:
    """The sum of BIGINTs as a DECIMAL: it has room on its way, whatever the order, and adds in long arithmetic."""
    high = F.sum(F.shiftright(name, LOW)).cast(DecimalType(28, 0))
    low = F.sum(F.col(name).bitwiseAND(F.lit(2**LOW - 1))).cast(DecimalType(28, 0))
    return (high * F.lit(2**LOW).cast(DecimalType(10, 0)) + low).cast(DecimalType(WIDEST, 0))


# A way to keep an aggregate: from the names and types of its arguments to Spark's state, as columns over its buffers.
Way = Callable[[Buffers, Sequence[str], Sequence[DataType]], list[Column]]


def known(count: str) -> Column:
    """A count, never null."""
    return F.coalesce(F.col(count), F.lit(0).cast("bigint"))


def kept_count(buffers: Buffers, names: Sequence[str], _: Sequence[DataType]) -> list[Column]:
    return [known(buffers.counted(*names))]


def kept_sum(buffers: Buffers, names: Sequence[str], kinds: Sequence[DataType]) -> list[Column]:
    """The sum as it is, and, of a DECIMAL, whether there was any."""
    total = buffers.summed(names[0], kinds[0])
    if isinstance(kinds[0], DecimalType):
        wider = DecimalType(min(kinds[0].precision + 10, WIDEST), kinds[0].scale)
        return [total.cast(wider), total.isNull()]
    return [total.cast("double" if isinstance(kinds[0], FractionalType) else "bigint")]


def kept_average(buffers: Buffers, names: Sequence[str], kinds: Sequence[DataType]) -> list[Column]:
    """Sum and count; of all but DECIMALs Spark adds up doubles."""
    if isinstance(kinds[0], DecimalType):
        total = kept_sum(buffers, names, kinds)[0]
    else:
        total = F.col(buffers.keep(F.sum(F.col(names[0]).cast("double")), Add.SUM, "sum of doubles", names[0]))
    return [F.coalesce(total, F.lit(0)), known(buffers.counted(names[0]))]


def kept_unscaled_sum(buffers: Buffers, names: Sequence[str], kinds: Sequence[DataType]) -> list[Column]:
    return [unscaled(buffers.summed(names[0], kinds[0]), kinds[0]).cast("bigint")]


def kept_unscaled_average(buffers: Buffers, names: Sequence[str], kinds: Sequence[DataType]) -> list[Column]:
    """Of DECIMALs of few digits Spark adds up DOUBLEs without a fraction: exactly, up to 2^53 in all."""
    total = unscaled(buffers.summed(names[0], kinds[0]), kinds[0]).cast("double")
    return [F.coalesce(total, F.lit(0.0)), known(buffers.counted(names[0]))]


def unscaled(total: Column, kind: DataType) -> Column:
    """A sum of DECIMALs without their point."""
    assert isinstance(kind, DecimalType)
    return (total * F.lit(10**kind.scale).cast(DecimalType(kind.scale + 1, 0))).cast(DecimalType(WIDEST, 0))


def kept_least(buffers: Buffers, names: Sequence[str], _: Sequence[DataType]) -> list[Column]:
    return [F.col(buffers.keep(F.min(names[0]), Add.MIN, names[0]))]


def kept_greatest(buffers: Buffers, names: Sequence[str], _: Sequence[DataType]) -> list[Column]:
    return [F.col(buffers.keep(F.max(names[0]), Add.MAX, names[0]))]


def kept_least_by(buffers: Buffers, names: Sequence[str], _: Sequence[DataType]) -> list[Column]:
    """The value with its order: of two parts the one whose order is less."""
    order = buffers.keep(F.min(names[1]), Add.MIN, names[1])
    return [F.col(buffers.keep(F.min_by(*names), Add.MIN_BY, *names, by=order)), F.col(order)]


def kept_greatest_by(buffers: Buffers, names: Sequence[str], _: Sequence[DataType]) -> list[Column]:
    order = buffers.keep(F.max(names[1]), Add.MAX, names[1])
    return [F.col(buffers.keep(F.max_by(*names), Add.MAX_BY, *names, by=order)), F.col(order)]


def kept_moments(buffers: Buffers, names: Sequence[str], _: Sequence[DataType]) -> list[Column]:
    """Count, mean and squared distances from the mean: sums of squares would lose what is small beside the mean."""
    value = F.col(names[0]).cast("double")
    count = buffers.counted(names[0])
    mean = buffers.keep(F.avg(value), Add.MEAN, names[0], by=count)
    squares = buffers.keep(F.var_pop(value) * F.count(value), Add.SQUARES, names[0], by=mean)
    none = F.lit(0.0)
    return [known(count).cast("double"), F.coalesce(F.col(mean), none), F.coalesce(F.col(squares), none)]


WAYS: dict[str, Way] = {
    "Count": kept_count,
    "Sum": kept_sum,
    "Average": kept_average,
    "Sum of UnscaledValue": kept_unscaled_sum,
    "Average of UnscaledValue": kept_unscaled_average,
    "Min": kept_least,
    "Max": kept_greatest,
    "MinBy": kept_least_by,
    "MaxBy": kept_greatest_by,
    "StddevPop": kept_moments,
    "StddevSamp": kept_moments,
    "VariancePop": kept_moments,
    "VarianceSamp": kept_moments,
}


def added(parts: DataFrame, buffers: Sequence[Buffer], groups: Sequence[str]) -> DataFrame:
    """Parts added up to one row a group."""
    whole = Window.partitionBy(*groups)
    means = {}
    for one in buffers:
        if one.add is Add.MEAN:
            weight = F.nullif(F.sum(one.by).over(whole), F.lit(0))  # none of none
            means[f"_{one.name}"] = F.sum(F.col(one.name) * F.col(one.by)).over(whole) / weight
    by_name = {one.name: one for one in buffers}
    rows = parts.withColumns(means) if means else parts
    return rows.groupBy(*groups).agg(*(total(one, by_name).alias(one.name) for one in buffers))


def total(one: Buffer, by_name: Mapping[str, Buffer]) -> Column:
    """The buffer of a whole group, of those of its parts."""
    if one.add is Add.MEAN:
        return F.max(f"_{one.name}")  # of equals
    if one.add is Add.SQUARES:
        apart = F.col(one.by) - F.col(f"_{one.by}")
        return F.sum(F.col(one.name) + F.col(by_name[one.by].by) * apart * apart)
    if one.add in (Add.MIN_BY, Add.MAX_BY):
        return (F.min_by if one.add is Add.MIN_BY else F.max_by)(one.name, one.by)
    return {Add.SUM: F.sum, Add.MIN: F.min, Add.MAX: F.max}[one.add](one.name)
