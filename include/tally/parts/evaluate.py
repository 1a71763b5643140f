"""What a plan makes of rows, made in this process: where all of its operations are known to give what Spark does.

Spark takes longer to plan a few rows than to make anything of them, and compiles for seconds what many rows are made
by. What is not known here, and what goes wrong here (a sum that outgrows its type, a division by zero), is left to
Spark, with its own words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from tally.lake import inside_spark
from tally.lake.inside_spark import items
from tally.parts.aggregates import Grouping, grouping
from tally.parts.merge import arrays
from tally.parts.operations import Columns, Made, Unknown, handed_on, made, number


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A node that keeps some rows."""

    keeps: Made

    @property
    def of(self) -> Set[int]:
        """The columns that it looks at."""
        return self.keeps.of

    def hands_on(self, same: Set[int]) -> Set[int]:
        """As which columns it gives some that are the same, where it makes nothing of them."""
        return set() if self.keeps.of & same else same

    def over(self, columns: Columns, count: int) -> tuple[Columns, int]:
        kept = self.keeps(columns, count)
        return {at: column.filter(kept) for at, column in columns.items()}, pc.sum(kept).as_py() or 0


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A node that makes columns."""

    makes: Mapping[int, Made]

    @property
    def of(self) -> Set[int]:
        """The columns that it looks at."""
        return frozenset().union(*(one.of for one in self.makes.values()))

    def hands_on(self, same: Set[int]) -> Set[int]:
        """As which columns it gives some that are the same, where it makes nothing else of them."""
        return handed_on(self.makes, same)

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
    def of(cls, out: DataFrame, given: DataFrame) -> Evaluation:
        """The evaluation of `out` over rows as `given` has them; Unknown where only Spark can do it."""
        leaf, plan = inside_spark.plan_of(given), out._jdf.queryExecution().optimizedPlan()
        try:
            steps = [step_of(out, node) for node in chain(plan, leaf)][::-1]
        except RecursionError:
            raise Unknown("a function that is so deep") from None
        names = {str(one.name()): number(one) for one in items(leaf.output())}
        output = [number(one) for one in items(plan.output())]
        used = set(output).union(*(step.of for step in steps))
        return cls(
            leaf={name: at for name, at in names.items() if at in used},
            steps=steps,
            output=output,
            schema=to_arrow_schema(out.schema, timezone="UTC"),
            window_groups_alone="window" in names and only_groups(steps, names["window"]),
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
            raise Unknown("a function that keeps no event")
        yield node
        node = node.children().apply(0)


def only_groups(steps: Sequence[Step], column: int) -> bool:
    """Whether the steps, from the leaf upwards, only hand a column on, and group by it: once."""
    same: Set[int] = {column}
    for step in steps:
        same = step.hands_on(same)
    return len(same) == 1


def step_of(out: DataFrame, node: Any) -> Step:
    kind = str(node.nodeName())
    if kind == "Filter":
        return Filter(keeps=made(node.condition()))
    if kind == "Project":
        return Projection(makes={number(one): made(one) for one in items(node.projectList())})
    if kind == "Aggregate":
        return grouping(inside_spark.aggregation(out.sparkSession, node))
    raise Unknown(f"the node {kind}")
