"""A pipeline's function in two: the parts of any piece of its events, and what finishes parts that were added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tally.checks.grouping import Lineage, top_aggregate
from tally.checks.plan import node_of
from tally.lake import inside_spark
from tally.lake.inside_spark import Aggregation, Bound, Measure, Template
from tally.parts.buffers import WAYS, Add, Buffer, Buffers, added
from tally.parts.merge import mergeable


@dataclass(frozen=True, kw_only=True)
class Split:
    """For all events E in any pieces: `finished(added(parts of each piece))` are the function's rows over E.

    They are the same but for the last digits of floating sums, and where a sum outgrows its type only on its way
    (docs/adr/0022). A part has the columns of all groups, g0, g1, ..., and of all buffers, b0, b1, ...; a group that
    the function's own filters leave out stands in parts nevertheless.
    """

    schema: StructType
    groups: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    window: str  # which of the groups is the pipeline's
    taking: Template
    addition: Template
    finish: Template

    @property
    def mergeable(self) -> bool:
        """Whether parts can be added up without Spark, too."""
        return mergeable(self.schema, self.buffers)

    def parts(self, frame: DataFrame) -> DataFrame:
        """The parts of a bounded frame as the function gets it, with its `window`: one a group."""
        return self.taking.over(frame)

    def added(self, parts: DataFrame) -> DataFrame:
        """Parts of many pieces, with all their columns, added up to one row a group, in any order and nesting."""
        return self.addition.over(parts)

    def finished(self, parts: DataFrame) -> DataFrame:
        """The function's rows of parts that are added up: one a group."""
        return self.finish.over(parts)


def split(spark: SparkSession, out: DataFrame, given: DataFrame) -> Split:
    """The function that gives `out` of `given`, in two at its aggregation; it must be one that can be combined."""
    bare = inside_spark.replaced(spark, inside_spark.plan_of(given))
    plan = node_of(inside_spark.replaced(spark, inside_spark.plan_of(out)), [bare])
    above, aggregate = top_aggregate(plan)
    assert aggregate is not None
    apart = inside_spark.aggregation(spark, aggregate.jvm)
    groups = tuple(f"g{at}" for at, _ in enumerate(apart.groups))
    arguments, buffers = Arguments(spark), Buffers()
    given_to = [arguments.of(one) for one in apart.measures]
    keys = [inside_spark.column_of(spark, one) for one in apart.groups]
    named = [key.alias(name, metadata={}) for key, name in zip(keys, groups, strict=True)]
    below = inside_spark.frame_of(apart.below, spark).select(*named, *arguments.columns)
    types = {field.name: field.dataType for field in below.schema.fields}
    states = [
        WAYS[one.kind](buffers, names, [types[name] for name in names])
        for one, names in zip(apart.measures, given_to, strict=True)
    ]
    if not buffers.found:
        buffers.keep(F.count(F.lit(1)), Add.SUM)  # a function that asks nothing of its groups but that they are there
    kept = list(buffers.found.values())
    taken = below.groupBy(*groups).agg(*(one.part.alias(one.name) for one in kept))
    empty = spark.createDataFrame([], taken.schema.toNullable())
    addition = added(empty, kept, groups)
    finish = finished(spark, empty, apart, states, [node.jvm for node in reversed(above)])
    return Split(
        schema=empty.schema,
        groups=groups,
        buffers=tuple(kept),
        window=window_of(apart.groups, Lineage(plan, [given])),
        taking=Template.of(taken, inside_spark.frame_of(bare, spark)),
        addition=Template.of(addition, empty),
        finish=Template.of(finish, empty),
    )


def window_of(groups: Sequence[Any], lineage: Lineage) -> str:
    """The group that is the window which the function was given: others may have its type. None: an empty name."""
    ids = [int(one.toAttribute().exprId().id()) for one in groups]
    return next((f"g{at}" for at, one in enumerate(ids) if lineage.origin(one) == (0, "window")), "")


def finished(
    spark: SparkSession, empty: DataFrame, apart: Aggregation, states: Sequence[Sequence[Column]], above: Sequence[Any]
) -> DataFrame:
    """Spark's own results of its own state, made of the parts' columns, and what the function makes of them."""
    groups = [one.toAttribute() for one in apart.groups]
    attributes = {f"g{at}": Bound.to(one) for at, one in enumerate(groups)}
    columns: dict[str, Column] = {name: F.col(name) for name in attributes}
    for measure, state in zip(apart.measures, states, strict=True):
        for column, attribute in zip(state, measure.state, strict=True):
            name = f"s{len(columns)}"
            columns[name], attributes[name] = column, Bound.to(attribute)
    state_of = empty.select(*(column.alias(name) for name, column in columns.items()))
    plan = inside_spark.renamed(state_of, attributes)
    results = [inside_spark.bound(spark, one.evaluated, one.result) for one in apart.measures]
    plan = inside_spark.project(spark, [*groups, *results], plan)
    plan = inside_spark.project(spark, apart.results, plan)
    return inside_spark.frame_of(inside_spark.on_top(above, plan), spark)


class Arguments:
    """What the aggregates of a function are given, each expression once, as columns a0, a1, ... of a frame."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.found: list[tuple[Any, Any | None]] = []
        self.columns: list[Column] = []

    def of(self, measure: Measure) -> list[str]:
        """The names of an aggregate's arguments, each null where its filter leaves a row out."""
        return [self.named(one, measure.filter) for one in measure.arguments]

    def named(self, expression: Any, where: Any | None) -> str:
        for at, (other, filter) in enumerate(self.found):
            same = filter is where if filter is None or where is None else filter.semanticEquals(where)
            if same and other.semanticEquals(expression):
                return f"a{at}"
        column = inside_spark.column_of(self.spark, expression)
        if where is not None:
            column = F.when(inside_spark.column_of(self.spark, where), column)
        self.found.append((expression, where))
        self.columns.append(column.alias(f"a{len(self.columns)}", metadata={}))
        return f"a{len(self.columns) - 1}"
