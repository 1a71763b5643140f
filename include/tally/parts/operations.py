"""Single values made of others, as Spark's expressions make them: of whole columns at a time, in this process.

Only what is known to give the very value that Spark gives is here. Where it would raise an error, so does this, one of
Arrow's or an arithmetic one; as it does where the two would take a value differently (no number, minus zero).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    NullType,
    StringType,
    StructType,
    TimestampType,
    _parse_datatype_json_string,
)

from tally.lake.inside_spark import items, named

# The columns at some node of the plan, by the numbers that Spark knows them by.
Columns = Mapping[int, pa.Array]
Arrays = Sequence[pa.Array]
MOST_BITS = 63
# Decimals on their way: of two of Spark's, a sum or a product fits.
WIDE = 76


class Unknown(Exception):
    """Something that only Spark evaluates; its text says what."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """How values are made, of so many rows; of which columns, and whether they are one of these, as it is."""

    values: Callable[[Columns, int], pa.Array]
    of: frozenset[int] = frozenset()
    as_it_is: bool = False

    def __call__(self, columns: Columns, count: int) -> pa.Array:
        return self.values(columns, count)


def handed_on(makes: Mapping[int, Made], same: Set[int]) -> Set[int]:
    """Which of the columns made here are some that are the same, as they are; none where more is made of these."""
    looks = {at: one for at, one in makes.items() if one.of & same}
    return set(looks) if all(one.as_it_is for one in looks.values()) else set()


def number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def made(expression: Any) -> Made:
    """How an expression's values are made."""
    kind = named(expression)
    if kind == "AttributeReference":
        at = number(expression)
        return Made(values=lambda columns, _: columns[at], of=frozenset({at}), as_it_is=True)
    if kind == "Alias":
        return made(expression.child())
    if kind == "Literal":
        value = literal(expression)
        return Made(values=lambda _, count: pa.repeat(value, count))
    if kind not in KNOWN:
        raise Unknown(f"the operation {kind}")
    below = items(expression.children())
    inner = [made(one) for one in below]
    act = KNOWN[kind](expression, [type_of(one) for one in below], type_of(expression))
    return Made(
        values=lambda columns, count: act([one(columns, count) for one in inner]),
        of=frozenset().union(*(one.of for one in inner)),
    )


def type_of(expression: Any) -> DataType:
    kind: DataType = _parse_datatype_json_string(expression.dataType().json())
    return kind


def literal(expression: Any) -> pa.Scalar:
    kind, value = type_of(expression), expression.value()
    target = to_arrow_type(kind, timezone="UTC")
    if isinstance(kind, NullType):
        raise Unknown("a null of no type")
    if value is None or isinstance(kind, IntegralType | FloatType | DoubleType | BooleanType):
        return pa.scalar(value, target)
    if isinstance(kind, DecimalType):
        return pa.scalar(Decimal(str(value.toString())), target)
    if kind == StringType():
        return pa.scalar(text(bytes(value.getBytes())), target)
    if isinstance(kind, DateType | TimestampType):
        return pa.scalar(value, pa.int32() if isinstance(kind, DateType) else pa.int64()).cast(target)
    raise Unknown(f"a literal of type {kind.simpleString()}")


def text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise Unknown("a text of bytes that are no letters") from None


# An operation: by the expression, the types below it and its own, what is done with the values below; or Unknown.
Act = Callable[[Arrays], pa.Array]
Operation = Callable[[Any, Sequence[DataType], DataType], Act]


def same(_: Any, __: Sequence[DataType], ___: DataType) -> Act:
    return lambda given: given[0]


def field_of(expression: Any, _: Sequence[DataType], __: DataType) -> Act:
    at = int(expression.ordinal())
    return lambda given: pc.struct_field(given[0], [at])


def first_there(_: Any, below: Sequence[DataType], __: DataType) -> Act:
    alike(below)
    return lambda given: pc.coalesce(*given)


def if_else(_: Any, below: Sequence[DataType], __: DataType) -> Act:
    alike(below[1:])
    return lambda given: chosen(given[0], given[1], given[2])


def first_case(_: Any, below: Sequence[DataType], kind: DataType) -> Act:
    """Conditions and values in turn, and what else."""
    pairs = len(below) // 2
    alike([*(below[2 * at + 1] for at in range(pairs)), *below[2 * pairs :], kind])
    target = to_arrow_type(kind, timezone="UTC")

    def act(given: Arrays) -> pa.Array:
        found = given[-1] if len(given) % 2 else pa.nulls(len(given[0]), target)
        for at in reversed(range(pairs)):
            found = chosen(given[2 * at], given[2 * at + 1], found)
        return found

    return act


def chosen(where: pa.Array, one: pa.Array, other: pa.Array) -> pa.Array:
    """The one where it holds; where that is not known, the other."""
    return pc.if_else(pc.fill_null(where, False), one, other)


def cast(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    """Whole numbers as wider, floating or exact ones, exact ones of no smaller scale; what does not fit is an error."""
    (given,) = below
    strict = str(expression.evalMode().toString()) == "ANSI"
    target = to_arrow_type(kind, timezone="UTC")
    if given == kind:
        return lambda values: values[0]
    if isinstance(given, FloatType) and isinstance(kind, DoubleType):
        return lambda values: values[0].cast(target)
    if isinstance(given, IntegralType) and isinstance(kind, DoubleType):
        return lambda values: values[0].cast(target, safe=False)  # the nearest, as Java has it
    if isinstance(given, IntegralType) and isinstance(kind, DecimalType) and strict:
        return lambda values: values[0].cast(pa.decimal256(WIDE, kind.scale)).cast(target)
    whole = isinstance(given, IntegralType) or (isinstance(given, DecimalType) and not given.scale)
    exact = isinstance(given, DecimalType) and isinstance(kind, DecimalType) and given.scale <= kind.scale
    if strict and exact:  # Arrow multiplies 128 bits by a power of ten without asking whether that fits
        return lambda values: values[0].cast(pa.decimal256(WIDE, kind.scale)).cast(target)
    if strict and whole and isinstance(kind, IntegralType):
        return lambda values: values[0].cast(target)
    raise Unknown(f"a cast of {given.simpleString()} to {kind.simpleString()}")


def sum_in_bounds(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    if expression.nullOnOverflow() or not isinstance(below[0], DecimalType) or not isinstance(kind, DecimalType):
        raise Unknown("a sum that is null where it outgrows its type")
    target = to_arrow_type(kind, timezone="UTC")
    return lambda values: values[0].cast(target)


def without_point(_: Any, below: Sequence[DataType], __: DataType) -> Act:
    """The digits of a DECIMAL as a whole number: of so few that it is its lower half."""
    (given,) = below
    if not isinstance(given, DecimalType) or given.precision > 18:
        raise Unknown(f"the digits of {given.simpleString()}")

    def act(values: Arrays) -> pa.Array:
        halves = np.frombuffer(values[0].buffers()[1], np.int64)
        found = halves[2 * values[0].offset : 2 * (values[0].offset + len(values[0])) : 2]
        return pa.array(found, pa.int64(), mask=pc.is_null(values[0]).to_numpy(zero_copy_only=False))

    return act


def with_point(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    """A whole number as the digits of a DECIMAL."""
    if not isinstance(kind, DecimalType) or expression.nullOnOverflow():
        raise Unknown(f"digits of {kind.simpleString()}")
    alike([below[0], LongType()])
    most, target = 10**kind.precision, to_arrow_type(kind, timezone="UTC")

    def act(values: Arrays) -> pa.Array:
        given = values[0].fill_null(0).to_numpy(zero_copy_only=False)
        if len(given) and max(int(given.max()), -int(given.min())) >= most:
            raise ArithmeticError(f"digits that {kind} does not hold")
        halves = np.empty(2 * len(given), np.int64)
        halves[::2], halves[1::2] = given, given >> 63
        digits = pa.Array.from_buffers(target, len(given), [None, pa.py_buffer(halves)])
        return pc.if_else(values[0].is_valid(), digits, pa.scalar(None, target))

    return act


def divide(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    if any(not isinstance(one, DoubleType) for one in (*below, kind)):
        raise Unknown("a division of other than doubles")
    strict = str(expression.evalMode().toString()) == "ANSI"

    def act(given: Arrays) -> pa.Array:
        zero = pc.equal(given[1], 0.0)
        if strict and pc.any(pc.and_(zero, pc.is_valid(given[0]))).as_py():
            raise ZeroDivisionError
        return pc.divide(given[0], pc.if_else(zero, pa.scalar(None, pa.float64()), given[1]))

    return act


def reckon(checked: Callable[[Any, Any], Any]) -> Operation:
    def known(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
        strict = str(expression.evalMode().toString()) == "ANSI"
        if strict and all(isinstance(one, DecimalType) for one in (*below, kind)):
            return exactly(checked, below, kind)
        alike([*below, kind])
        if not isinstance(kind, DoubleType) and not (strict and isinstance(kind, IntegralType)):
            raise Unknown(f"arithmetic of {kind.simpleString()}")
        return lambda given: checked(given[0], given[1])

    return known


def exactly(checked: Callable[[Any, Any], Any], below: Sequence[Any], kind: Any) -> Act:
    """The same of DECIMALs, in so many digits that none is lost on the way, where none is to be at its end."""
    scales = [one.scale for one in below]
    if kind.scale != (sum(scales) if checked is pc.multiply_checked else max(scales)):
        raise Unknown(f"arithmetic that rounds to {kind.simpleString()}")
    target = to_arrow_type(kind, timezone="UTC")
    wide = [pa.decimal256(WIDE // 2 - 1, one) for one in scales]
    return lambda given: checked(*(one.cast(to) for one, to in zip(given, wide, strict=True))).cast(target)


def rest_of(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    """What a division of whole numbers leaves, with the sign of what is divided."""
    alike([*below, kind])
    if not isinstance(kind, IntegralType) or str(expression.evalMode().toString()) != "ANSI":
        raise Unknown(f"a remainder of {kind.simpleString()}")
    target = to_arrow_type(kind, timezone="UTC")

    def act(given: Arrays) -> pa.Array:
        number, by = (one.cast(pa.int64()) for one in given)
        if pc.any(pc.equal(by, 0)).as_py():
            raise ZeroDivisionError
        left = np.fmod(
            number.fill_null(0).to_numpy(zero_copy_only=False), by.fill_null(1).to_numpy(zero_copy_only=False)
        )
        there = pc.and_(number.is_valid(), by.is_valid())
        return pc.if_else(there, pa.array(left, pa.int64()).cast(target), pa.scalar(None, target))

    return act


def shift_right(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    """By so many bits as are written there, and fewer than there are: Spark takes other numbers modulo 64."""
    alike([below[0], kind, LongType()])
    by = items(expression.children())[1]
    if named(by) != "Literal" or literal(by).as_py() not in range(MOST_BITS):
        raise Unknown("a shift by what is no number of bits")
    return lambda given: pc.shift_right(given[0], given[1].cast(pa.int64()))


def bits_of_both(_: Any, below: Sequence[DataType], kind: DataType) -> Act:
    alike([*below, kind])
    return lambda given: pc.bit_wise_and(given[0], given[1])


def compare(act: Callable[[Any, Any], Any]) -> Operation:
    def known(_: Any, below: Sequence[DataType], __: DataType) -> Act:
        comparable(below)
        return lambda given: act(*map(numbers, given))

    return known


def is_one_of(_: Any, below: Sequence[DataType], __: DataType) -> Act:
    comparable(below)

    def act(given: Arrays) -> pa.Array:
        value, *others = map(numbers, given)
        return reduce(pc.or_kleene, (pc.equal(value, one) for one in others))

    return act


def comparable(kinds: Sequence[DataType]) -> None:
    alike(kinds)
    plain = IntegralType | DecimalType | FloatType | DoubleType | BooleanType | DateType | TimestampType
    if not isinstance(kinds[0], plain) and kinds[0] != StringType():
        raise Unknown(f"a comparison of {kinds[0].simpleString()}")


def numbers(values: pa.Array) -> pa.Array:
    """Values that are in order as they are; to Spark what is no number equals itself, and is more than all others."""
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        raise ArithmeticError("no number")
    return values


def plain(act: Callable[..., Any]) -> Operation:
    return lambda _, __, ___: lambda given: act(*given)


def alike(kinds: Sequence[DataType]) -> None:
    """Refuse types that differ: Spark casts before it computes, and what does not is not known here."""
    if any(kind != kinds[0] or isinstance(kind, StructType) for kind in kinds):
        raise Unknown("types that differ")


KNOWN: dict[str, Operation] = {
    "KnownNotNull": same, "KnownNullable": same, "GetStructField": field_of, "Coalesce": first_there,
    "If": if_else, "CaseWhen": first_case, "Cast": cast, "CheckOverflowInSum": sum_in_bounds,
    "UnscaledValue": without_point, "MakeDecimal": with_point, "Divide": divide, "Remainder": rest_of,
    "Add": reckon(pc.add_checked), "Subtract": reckon(pc.subtract_checked), "Multiply": reckon(pc.multiply_checked),
    "ShiftRight": shift_right, "BitwiseAnd": bits_of_both, "In": is_one_of,
    "EqualTo": compare(pc.equal), "LessThan": compare(pc.less), "LessThanOrEqual": compare(pc.less_equal),
    "GreaterThan": compare(pc.greater), "GreaterThanOrEqual": compare(pc.greater_equal),
    "IsNull": plain(pc.is_null), "IsNotNull": plain(pc.is_valid), "Not": plain(pc.invert),
    "And": plain(pc.and_kleene), "Or": plain(pc.or_kleene),
}  # fmt: skip
