"""Which columns of its topics each measure of a pipeline is made of: only these say how large what it sums is."""

from __future__ import annotations

from collections.abc import Sequence, Set

from pyspark.sql import SparkSession

from tally.catalog.schema import Field
from tally.catalog.spec import Pipeline
from tally.checks.aggregates import ALWAYS_ROUNDED, SMOOTH
from tally.checks.grouping import Lineage
from tally.checks.plan import Expression, plan_of
from tally.kinds import kind_of
from tally.kinds.frames import called

MadeOf = frozenset[tuple[int, str]]  # (number of the topic, column)
FLOATING = {"DOUBLE", "FLOAT"}
NUMBERS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL"} | FLOATING
# Of these the first operand alone says how large the result is.
OF_THE_FIRST = {"Divide", "TryDivide"}


def is_number(column: Field) -> bool:
    return column.type.split("(")[0] in NUMBERS


def measured(spark: SparkSession, pipeline: Pipeline, names: Sequence[str]) -> list[MadeOf]:
    """For each of these columns of a function's output."""
    if not names:
        return []
    given = kind_of(pipeline).empty(spark)
    plan = plan_of(called(pipeline, given), given)
    lineage, columns = Lineage(plan, given), dict(plan.output)
    topics = list(enumerate(pipeline.reads))
    floating = {(at, column.name) for at, topic in topics for column in topic.schema if column.type in FLOATING}
    others = {(at, column.name) for at, topic in topics for column in topic.schema if is_number(column)} - floating
    return [known(lineage, columns[name], floating) | others & added_up(lineage, columns[name]) for name in names]


def known(lineage: Lineage, ident: int, floating: Set[tuple[int, str]]) -> MadeOf:
    """The floating columns that a measure may be made of; where it is of no column that is known, all of them."""
    made = lineage.made.get(ident)
    found = lineage.origins(made) if made is not None else {lineage.origin(ident)}
    return frozenset(floating if None in found else floating & found)


def added_up(lineage: Lineage, ident: int) -> set[tuple[int, str] | None]:
    """The columns of which a measure adds up the values as DOUBLEs: no condition's, and none that a function bounds."""
    made = lineage.made.get(ident)
    return set() if made is None else of_sums(made, lineage)


def of_sums(one: Expression, lineage: Lineage) -> set[tuple[int, str] | None]:
    if one.kind == "AttributeReference":
        return added_up(lineage, one.id or -1)
    function = one.below[0] if one.kind == "AggregateExpression" else None
    if function is not None:
        sums = function.type == "double" and function.kind in {"Sum", "Average"} | ALWAYS_ROUNDED
        return set[tuple[int, str] | None]().union(*(summands(it, lineage) for it in function.below if sums))
    return set[tuple[int, str] | None]().union(*(of_sums(child, lineage) for child in one.below))


def summands(one: Expression, lineage: Lineage) -> set[tuple[int, str] | None]:
    """The columns whose values are as large as a value, or together make it so large."""
    if one.kind == "AttributeReference":
        made = lineage.made.get(one.id or -1)
        return {lineage.origin(one.id)} if made is None else summands(made, lineage)
    if one.type == "boolean" or one.kind not in SMOOTH | {"Cast"}:
        return set()
    below = one.below[:1] if one.kind in OF_THE_FIRST else one.below
    return set[tuple[int, str] | None]().union(*(summands(child, lineage) for child in below))
