"""What a plan makes of a few rows, made in this process: where all of its operations are known to give what Spark does.

Spark takes longer to plan a few rows than to make anything of them. What is not known here, and what goes wrong here (a
sum that outgrows its type, a division by zero), is left to Spark, with its own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    IntegralType,
    NullType,
    StructType,
    _parse_datatype_json_string,
)

from tally.lake import inside_spark
from tally.lake.inside_spark import items, named
from tally.parts.merge import arrays

# The columns at some node of the plan, by the numbers that Spark knows them by.
Columns = Mapping[int, pa.Array]
Made = Callable[[Columns, int], pa.Array]  # of so many rows
Arrays = Sequence[pa.Array]


class Unknown(Exception):
    """Something in a plan that only Spark evaluates."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A node of the plan: the rows that it keeps, or the columns that it makes."""

    keeps: Made | None = None
    makes: Mapping[int, Made] | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A plan over one leaf, step by step from there."""

    leaf: Sequence[int]
    steps: Sequence[Step]
    output: Sequence[int]
    schema: pa.Schema

    @classmethod
    def of(cls, out: DataFrame, given: DataFrame) -> Evaluation | None:
        """The evaluation of `out` over rows as `given` has them; None where only Spark can do it."""
        leaf, node, steps = inside_spark.plan_of(given), out._jdf.queryExecution().optimizedPlan(), list[Step]()
        try:
            while not node.fastEquals(leaf):
                steps.append(step_of(node))
                node = node.children().apply(0)
        except Unknown:
            return None
        output = items(out._jdf.queryExecution().optimizedPlan().output())
        return cls(
            leaf=[number(one) for one in items(leaf.output())],
            steps=steps[::-1],
            output=[number(one) for one in output],
            schema=to_arrow_schema(out.schema, timezone="UTC"),
        )

    def over(self, rows: pa.Table) -> pa.Table | None:
        """What the plan makes of these rows; None where that is Spark's to say."""
        count = rows.num_rows
        columns: Columns = dict(zip(self.leaf, arrays(rows).values(), strict=True))
        try:
            for step in self.steps:
                if step.keeps is not None:
                    kept = step.keeps(columns, count)
                    columns = {at: column.filter(kept) for at, column in columns.items()}
                    count = pc.sum(kept).as_py() or 0
                elif step.makes is not None:
                    columns = {at: make(columns, count) for at, make in step.makes.items()}
        except (pa.ArrowException, ArithmeticError):
            return None
        return pa.table([columns[at] for at in self.output], names=self.schema.names).cast(self.schema)


def step_of(node: Any) -> Step:
    kind = str(node.nodeName())
    if kind == "Filter":
        return Step(keeps=made(node.condition()))
    if kind == "Project":
        return Step(makes={number(one): made(one) for one in items(node.projectList())})
    raise Unknown(kind)


def number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def made(expression: Any) -> Made:
    """How an expression's values are made."""
    kind = named(expression)
    if kind == "AttributeReference":
        at = number(expression)
        return lambda columns, _: columns[at]
    if kind == "Literal":
        value = literal(expression)
        return lambda _, count: pa.repeat(value, count)
    if kind not in KNOWN:
        raise Unknown(kind)
    below = items(expression.children())
    act = KNOWN[kind](expression, [type_of(one) for one in below], type_of(expression))
    inner = [made(one) for one in below]
    return lambda columns, count: act([one(columns, count) for one in inner])


def type_of(expression: Any) -> DataType:
    kind: DataType = _parse_datatype_json_string(expression.dataType().json())
    return kind


def literal(expression: Any) -> pa.Scalar:
    kind, value = type_of(expression), expression.value()
    if isinstance(kind, NullType):
        raise Unknown("a null of no type")
    if value is not None and not isinstance(kind, IntegralType | DoubleType):
        if not isinstance(kind, DecimalType):
            raise Unknown(f"a literal of type {kind}")
        value = Decimal(str(value.toString()))
    return pa.scalar(value, to_arrow_type(kind, timezone="UTC"))


# An operation: by the expression, the types below it and its own, what is done with the values below; or Unknown.
Act = Callable[[Arrays], pa.Array]


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
    return lambda given: pc.if_else(pc.fill_null(given[0], False), given[1], given[2])


def cast(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    """Whole numbers as wider or floating ones, and exact ones of the same scale; what does not fit is an error."""
    (given,) = below
    strict = str(expression.evalMode().toString()) == "ANSI"
    target = to_arrow_type(kind, timezone="UTC")
    if isinstance(given, IntegralType) and isinstance(kind, DoubleType):
        return lambda values: values[0].cast(target, safe=False)  # the nearest, as Java has it
    whole = isinstance(given, IntegralType) or (isinstance(given, DecimalType) and not given.scale)
    exact = isinstance(given, DecimalType) and isinstance(kind, DecimalType) and given.scale == kind.scale
    if strict and (exact or (whole and isinstance(kind, IntegralType))):
        return lambda values: values[0].cast(target)
    raise Unknown(f"a cast of {given} to {kind}")


def sum_in_bounds(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
    if expression.nullOnOverflow() or not isinstance(below[0], DecimalType) or not isinstance(kind, DecimalType):
        raise Unknown("a sum that is null where it outgrows its type")
    target = to_arrow_type(kind, timezone="UTC")
    return lambda values: values[0].cast(target)


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


def reckon(checked: Callable[[Any, Any], Any]) -> Callable[[Any, Sequence[DataType], DataType], Act]:
    def known(expression: Any, below: Sequence[DataType], kind: DataType) -> Act:
        alike([*below, kind])
        strict = str(expression.evalMode().toString()) == "ANSI"
        if not isinstance(kind, DoubleType) and not (strict and isinstance(kind, IntegralType)):
            raise Unknown(f"arithmetic of {kind}")
        return lambda given: checked(given[0], given[1])

    return known


def compare(act: Callable[[Any, Any], Any]) -> Callable[[Any, Sequence[DataType], DataType], Act]:
    """Of whole and of exact numbers alone: to Spark a floating one that is no number equals itself."""

    def known(_: Any, below: Sequence[DataType], __: DataType) -> Act:
        alike(below)
        if not isinstance(below[0], IntegralType | DecimalType):
            raise Unknown(f"a comparison of {below[0]}")
        return lambda given: act(given[0], given[1])

    return known


def plain(act: Callable[..., Any]) -> Callable[[Any, Sequence[DataType], DataType], Act]:
    return lambda _, __, ___: lambda given: act(*given)


def alike(kinds: Sequence[DataType]) -> None:
    """Refuse types that differ: Spark casts before it computes, and what does not is not known here."""
    if any(kind != kinds[0] or isinstance(kind, StructType) for kind in kinds):
        raise Unknown("types that differ")


KNOWN: dict[str, Callable[[Any, Sequence[DataType], DataType], Act]] = {
    "Alias": same, "KnownNotNull": same, "KnownNullable": same, "GetStructField": field_of, "Coalesce": first_there,
    "If": if_else, "Cast": cast, "CheckOverflowInSum": sum_in_bounds, "Divide": divide,
    "Add": reckon(pc.add_checked), "Subtract": reckon(pc.subtract_checked), "Multiply": reckon(pc.multiply_checked),
    "EqualTo": compare(pc.equal), "LessThan": compare(pc.less), "LessThanOrEqual": compare(pc.less_equal),
    "GreaterThan": compare(pc.greater), "GreaterThanOrEqual": compare(pc.greater_equal),
    "IsNull": plain(pc.is_null), "IsNotNull": plain(pc.is_valid), "Not": plain(pc.invert),
    "And": plain(pc.and_kleene), "Or": plain(pc.or_kleene),
}  # fmt: skip
