"""Rows put in groups, and counted, added up or chosen from, as Spark's aggregates do: in this process.

What two orders of adding could make of it, or two ways to think of minus zero, is an error: then Spark is to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
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
    StringType,
    TimestampType,
)

from tally.lake.inside_spark import Aggregation, Measure, items, named
from tally.parts.buffers import WIDEST
from tally.parts.operations import WIDE, Columns, Made, Unknown, handed_on, literal, made, number, type_of

BOUND = 2**63
WINDOW = "struct<start:timestamp,end:timestamp>"
KEYS = IntegralType | BooleanType | DateType | TimestampType | DecimalType
Ready = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, kw_only=True)
class Total:
    """One value of a whole group: what Arrow calls it, of what, and what is done with that before and after."""

    how: str
    of: Made | None = None
    ready: Ready = lambda values: values
    after: Ready = lambda values: values


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Rows in groups: by which columns, what of each group, and what is made of both."""

    keys: Mapping[int, Made]
    totals: Mapping[int, Total]
    results: Mapping[int, Made]

    @property
    def of(self) -> Set[int]:
        """The columns that it looks at."""
        looked = [*self.keys.values(), *(one.of for one in self.totals.values() if one.of is not None)]
        return frozenset().union(*(one.of for one in looked))

    def hands_on(self, same: Set[int]) -> Set[int]:
        """As which columns it gives some that are the same, and by which it only groups."""
        if any(one.of.of & same for one in self.totals.values() if one.of is not None):
            return set()
        return handed_on(self.results, handed_on(self.keys, same))

    def over(self, columns: Columns, count: int) -> tuple[Columns, int]:
        """A row a group."""
        keys = {at: key(columns, count) for at, key in self.keys.items()}
        asked = list(self.totals.values())
        values = [None if one.of is None else one.ready(one.of(columns, count)) for one in asked]
        groups, found = grouped(
            list(keys.values()), [(one.how, value) for one, value in zip(asked, values, strict=True)]
        )
        made_of = dict(zip(keys, groups, strict=True))
        made_of |= {at: one.after(value) for (at, one), value in zip(self.totals.items(), found, strict=True)}
        rows = len(groups[0])
        return {at: make(made_of, rows) for at, make in self.results.items()}, rows


def grouping(apart: Aggregation) -> Grouping:
    """An aggregation that can be made here; or Unknown."""
    for one in apart.groups:
        check_key(type_of(one))
    return Grouping(
        keys={number(one.toAttribute()): made(one) for one in apart.groups},
        totals={number(one.result): total(one) for one in apart.measures},
        results={number(one.toAttribute()): made(one) for one in apart.results},
    )


def check_key(kind: DataType) -> None:
    """Of floating numbers several are one group; so are texts that do not have their plain order."""
    if not isinstance(kind, KEYS) and kind != StringType() and kind.simpleString() != WINDOW:
        raise Unknown(f"groups by {kind.simpleString()}")


def total(measure: Measure) -> Total:
    """How an aggregate is made here."""
    function = measure.function
    kind, of = named(function), items(function.children())
    if measure.filter is not None or kind not in TOTALS:
        raise Unknown(f"the aggregate {kind}" + (" with a filter" if measure.filter is not None else ""))
    return TOTALS[kind](of, type_of(function))


def count(of: Sequence[Any], _: DataType) -> Total:
    """Of rows in which all of these have a value."""
    values = [made(one) for one in of if named(one) != "Literal" or literal(one).as_py() is None]
    if not values:
        return Total(how="count_all")

    def there(columns: Columns, rows: int) -> pa.Array:
        return reduce(pc.and_, (pc.is_valid(one(columns, rows)) for one in values)).cast(pa.int64())

    each = Made(values=there, of=frozenset().union(*(one.of for one in values)))
    return Total(how="sum", of=each, after=lambda found: found.fill_null(0))


def summed(of: Sequence[Any], kind: DataType) -> Total:
    (given,) = map(type_of, of)
    target = to_arrow_type(kind, timezone="UTC")
    if isinstance(given, DecimalType):
        return Total(how="sum", of=made(of[0]), ready=roomy, after=lambda found: found.cast(target))
    if isinstance(given, IntegralType):
        return Total(how="sum", of=made(of[0]), ready=bounded)
    if isinstance(given, DoubleType):
        return Total(how="sum", of=made(of[0]))
    raise Unknown(f"a sum of {given.simpleString()}")


def bounded(values: pa.Array) -> pa.Array:
    """Whole numbers whose sum does not outgrow a BIGINT, in whatever order they are added."""
    wide = values.cast(pa.int64())
    check_sum(wide, 1, BOUND)
    return wide


def roomy(values: pa.Array) -> pa.Array:
    """DECIMALs whose sum has no more digits than Spark has, in whatever order they are added."""
    wide = values.cast(pa.decimal256(WIDE, values.type.scale))
    check_sum(values, 10**values.type.scale, 10**WIDEST)
    return wide


def check_sum(values: pa.Array, unit: int, bound: int) -> None:
    """Refuse to add so many values of such sizes, counted in units: on its way their sum may reach the bound."""
    bounds = pc.min_max(values)
    most = max(abs(bounds["min"].as_py() or 0), abs(bounds["max"].as_py() or 0))
    if Fraction(most) * unit * len(values) >= bound:
        raise ArithmeticError("a sum that may outgrow its type")


def chosen(how: str, of: Sequence[Any], kind: DataType) -> Total:
    if isinstance(kind, FloatType | DoubleType):
        return Total(how=how, of=made(of[0]), ready=in_order)
    if not isinstance(kind, KEYS) and kind != StringType():
        raise Unknown(f"the {how} of {kind.simpleString()}")
    return Total(how=how, of=made(of[0]))


def in_order(values: pa.Array) -> pa.Array:
    """Floating numbers of which each is itself, and there is one zero."""
    numbers = values.drop_null().to_numpy()
    if np.isnan(numbers).any() or (np.signbit(numbers) & (numbers == 0)).any():
        raise ArithmeticError("no number, or minus zero")
    return values


TOTALS: dict[str, Callable[[Sequence[Any], DataType], Total]] = {
    "Count": count,
    "Sum": summed,
    "Min": partial(chosen, "min"),
    "Max": partial(chosen, "max"),
}


def grouped(
    keys: Sequence[pa.Array], totals: Sequence[tuple[str, pa.Array | None]]
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The groups of rows that are alike in the keys, and of each the totals, in the same order."""
    columns: dict[str, pa.Array] = {}
    names = [leaves(key, f"k{at}", columns) for at, key in enumerate(keys)]
    by = list(columns)
    asked: list[tuple[Any, ...]] = []
    for at, (how, value) in enumerate(totals):
        if value is None:
            asked.append(([], how))
        else:
            columns[f"v{at}"] = value
            asked.append((f"v{at}", how))
    made = pa.table(columns).group_by(by, use_threads=False).aggregate(asked).combine_chunks()
    found = {name: one_piece(made[name]) for name in by}
    groups = [put_together(key, name, found) for key, name in zip(keys, names, strict=True)]
    values = [one_piece(made[how if not of else f"{of}_{how}"]) for of, how in asked]
    return groups, values


def leaves(key: pa.Array, name: str, columns: dict[str, pa.Array]) -> str:
    """A key as columns of its own: one, or those of its fields, none of which is in nothing."""
    if not pa.types.is_struct(key.type):
        columns[name] = key
        return name
    if key.null_count:
        raise ArithmeticError("a group without a window")
    for at in range(key.type.num_fields):
        columns[f"{name}.{at}"] = pc.struct_field(key, [at])
    return name


def put_together(key: pa.Array, name: str, found: Mapping[str, pa.Array]) -> pa.Array:
    if not pa.types.is_struct(key.type):
        return found[name]
    return pa.StructArray.from_arrays(
        [found[f"{name}.{at}"] for at in range(key.type.num_fields)], fields=list(key.type)
    )


def one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
