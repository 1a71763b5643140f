"""What a plan makes of rows, made in this process: where all of its operations are known to give what Spark does.

Spark takes longer to plan a few rows than to make anything of them, and compiles for seconds what many rows are made
by. What is not known here, and what goes wrong here (a sum that outgrows its type, a division by zero), is left to
Spark, with its own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from tally.lake import inside_spark
from tally.lake.inside_spark import items, named
from tally.parts.aggregates import Grouping, grouping
from tally.parts.merge import arrays
from tally.parts.operations import Columns, Made, Unknown, made, number


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A node that keeps some rows."""

    keeps: Made

    def over(self, columns: Columns, count: int) -> tuple[Columns, int]:
        kept = self.keeps(columns, count)
        return {at: column.filter(kept) for at, column in columns.items()}, pc.sum(kept).as_py() or 0


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A node that makes columns."""

    makes: Mapping[int, Made]

    def over(self, columns: Columns, count: int) -> tuple[Columns, int]:
        return {at: make(columns, count) for at, make in self.makes.items()}, count


Step = Filter | Projection | Grouping


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A plan over one leaf, step by step from there; `leaf` has the columns that it needs, by their names."""

    leaf: Mapping[str, int]
    steps: Sequence[Step]
    output: Sequence[int]
    schema: pa.Schema
    window_groups_alone: bool  # the window of the leaf's rows decides of nothing but the groups

    @classmethod
    def of(cls, out: DataFrame, given: DataFrame) -> Evaluation | None:
        """The evaluation of `out` over rows as `given` has them; None where only Spark can do it."""
        leaf, plan = inside_spark.plan_of(given), out._jdf.queryExecution().optimizedPlan()
        try:
            nodes = list(chain(plan, leaf))[::-1]
            steps = [step_of(out, node) for node in nodes]
        except (Unknown, RecursionError):
            return None
        names = {str(one.name()): number(one) for one in items(leaf.output())}
        output = [number(one) for one in items(plan.output())]
        used = {at for node in nodes for at in column_ids(node)} | set(output)
        return cls(
            leaf={name: at for name, at in names.items() if at in used},
            steps=steps,
            output=output,
            schema=to_arrow_schema(out.schema, timezone="UTC"),
            window_groups_alone="window" in names and only_groups(nodes, names["window"]),
        )

    def over(self, rows: pa.Table) -> pa.Table | None:
        """What the plan makes of these rows; None where that is Spark's to say."""
        there = arrays(rows.select(list(self.leaf)))
        columns: Columns = {at: there[name] for name, at in self.leaf.items()}
        count = rows.num_rows
        try:
            for step in self.steps:
                columns, count = step.over(columns, count)
        except (pa.ArrowException, ArithmeticError, RecursionError):
            return None
        return pa.table([columns[at] for at in self.output], names=self.schema.names).cast(self.schema)


def chain(node: Any, leaf: Any) -> Iterator[Any]:
    """The nodes above a leaf, the last one first."""
    while not node.fastEquals(leaf):
        if node.children().size() != 1:  # the optimizer left nothing of the leaf: no row is ever kept
            raise Unknown(str(node.nodeName()))
        yield node
        node = node.children().apply(0)


def only_groups(nodes: Sequence[Any], column: int) -> bool:
    """Whether the nodes, from the leaf upwards, only hand a column on, and group by it: once."""
    same = {column}
    for node in nodes:
        kind = str(node.nodeName())
        if kind == "Filter":
            if column_ids(node) & same:
                return False
            continue
        made_here = [*items(node.projectList())] if kind == "Project" else [*items(node.aggregateExpressions())]
        keys = items(node.groupingExpressions()) if kind == "Aggregate" else []
        if any(column_ids(one) & same and not handed_on(one) for one in [*made_here, *keys]):
            return False
        same = {number(one) for one in made_here if column_ids(one) & same}
    return len(same) == 1


def column_ids(one: Any) -> set[int]:
    """The columns that a node or an expression looks at."""
    return {number(other) for other in items(one.references().toSeq())}


def handed_on(expression: Any) -> bool:
    """Whether it is a column as it was, under whatever name."""
    bare = expression.child() if named(expression) == "Alias" else expression
    return named(bare) == "AttributeReference"


def step_of(out: DataFrame, node: Any) -> Step:
    kind = str(node.nodeName())
    if kind == "Filter":
        return Filter(keeps=made(node.condition()))
    if kind == "Project":
        return Projection(makes={number(one): made(one) for one in items(node.projectList())})
    if kind == "Aggregate":
        return grouping(inside_spark.aggregation(out.sparkSession, node))
    raise Unknown(kind)
