"""Adds parts of the same groups up in this process, as Spark does: to send it a few rows takes longer than to add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tally.parts.buffers import WIDEST, Add, Buffer

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def mergeable(schema: StructType, buffers: Sequence[Buffer]) -> bool:
    """Whether all of these buffers can be added up here: what is least or most of them must be ordered here too."""
    orders = (one.by or one.name for one in buffers if one.add in CHOOSES)
    return all(ordered(schema[name].dataType) for name in orders)


def ordered(kind: DataType) -> bool:
    """Whether values of a type have the order here that Spark gives them; text that has its plain one, by its bytes."""
    if isinstance(kind, StructType):
        return all(ordered(field.dataType) for field in kind.fields)
    return type(kind) in ORDERED and (not isinstance(kind, StringType) or kind == StringType())


def merged(old: pa.Table, new: pa.Table, buffers: Sequence[Buffer]) -> pa.Table:
    """Parts of the same groups, row by row, as one: a row of `old` that is all null has nothing to add."""
    mine, others = arrays(old), arrays(new)
    columns, by_name = dict(others), {one.name: one for one in buffers}
    for one in buffers:
        columns[one.name] = total(one, mine, others, columns, by_name)
    return pa.table(columns, schema=new.schema)


def arrays(table: pa.Table) -> dict[str, pa.Array]:
    """Its columns by name, each in one piece."""
    whole = table.combine_chunks()
    return {
        name: (column.chunk(0) if column.num_chunks else pa.array([], column.type))
        for name, column in zip(whole.column_names, whole.columns, strict=True)
    }


def total(
    one: Buffer,
    olds: Mapping[str, pa.Array],
    news: Mapping[str, pa.Array],
    columns: Mapping[str, pa.Array],
    by_name: Mapping[str, Buffer],
) -> pa.Array:
    """A buffer of both; the one that it goes by, which was kept before it, is in `columns` as it is of both."""
    mine, other = olds[one.name], news[one.name]
    if one.add is Add.SUM:
        return summed(mine, other)
    if one.add in CHOOSES:
        by = one.by or one.name
        keep = least(olds[by], news[by], most=one.add in (Add.MAX, Add.MAX_BY))
        rows = np.arange(len(keep))
        return pa.concat_arrays([mine, other]).take(pa.array(np.where(keep, rows, rows + len(keep))))
    if one.add is Add.MEAN:
        counts = [doubled(side[one.by]) for side in (olds, news)]
        weight = pc.add(*counts)
        both = summed(pc.multiply(mine, counts[0]), pc.multiply(other, counts[1]))
        return pc.divide(both, pc.if_else(pc.equal(weight, 0.0), pa.scalar(None, pa.float64()), weight))
    count, mean, apart = by_name[one.by].by, columns[one.by], []
    for side in (olds, news):
        distance = pc.subtract(side[one.by], mean)
        apart.append(pc.add(side[one.name], pc.multiply(pc.multiply(doubled(side[count]), distance), distance)))
    return summed(*apart)


def doubled(counts: pa.Array) -> pa.Array:
    return pc.fill_null(counts, 0).cast(pa.float64())


def summed(one: pa.Array, other: pa.Array) -> pa.Array:
    """Their sum, in their own type; null counts as nothing, and what outgrows the type is an error."""
    kind = one.type
    try:
        if pa.types.is_decimal(kind):
            wide = pa.decimal256(WIDEST + 2, kind.scale)
            both = pc.add(one.cast(wide), other.cast(wide)).cast(kind)
        else:
            both = pc.add_checked(one, other)
    except pa.ArrowInvalid as error:
        raise ArithmeticError(f"a sum outgrows its type, {kind}: {error}") from None
    return pc.coalesce(both, one, other)


def least(one: pa.Array, other: pa.Array, *, most: bool) -> Mask:
    """Where the first of two is to be kept: it is the least (or the most), or as good; null is worse than any value."""
    less, equal = compared(one, other)
    better = ~(less | equal) if most else less
    there, there_too = valid(one), valid(other)
    return np.where(there & there_too, better | equal, there)


def compared(one: pa.Array, other: pa.Array) -> tuple[Mask, Mask]:
    """Where the first is less, and where they are equal, as Spark orders values: null, numbers, and then no number."""
    there, there_too = valid(one), valid(other)
    if pa.types.is_struct(one.type):
        less, equal = np.zeros(len(one), dtype=bool), np.ones(len(one), dtype=bool)
        for at in range(one.type.num_fields):
            lesser, same = compared(pc.struct_field(one, [at]), pc.struct_field(other, [at]))
            less, equal = less | (equal & lesser), equal & same
    else:
        less, equal = mask(pc.less(one, other)), mask(pc.equal(one, other))
        if pa.types.is_floating(one.type):
            odd, odd_too = mask(pc.is_nan(one)), mask(pc.is_nan(other))
            less, equal = less | (odd_too & ~odd), equal | (odd & odd_too)
    both = there & there_too
    return (both & less) | (~there & there_too), (both & equal) | (~there & ~there_too)


def valid(array: pa.Array) -> Mask:
    return mask(pc.is_valid(array))


def mask(array: pa.BooleanArray) -> Mask:
    found: Mask = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return found


CHOOSES = {Add.MIN, Add.MAX, Add.MIN_BY, Add.MAX_BY}
ORDERED = {
    ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType, BooleanType, DateType,
    TimestampType, TimestampNTZType, StringType, BinaryType,
}  # fmt: skip
