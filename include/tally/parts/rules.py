"""Whether a function's rows can be added up from parts of its events: what is not known to add up is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tally.catalog.spec import Pipeline
from tally.checks.aggregates import settled
from tally.checks.grouping import Lineage, top_aggregate
from tally.checks.plan import GIVEN, Expression, Node, where_of
from tally.checks.plan_rules import CLOCKS, ROW_BY_ROW, SUBQUERIES

# What Spark defines by an aggregate that has a way to be kept: two by a count, two by min and max.
BY_OTHERS = {"CountIf", "RegrCount", "BoolAnd", "BoolOr"}
ADDED = {"Sum", "Average"}
CHOSEN = {"MinBy", "MaxBy"}
MOMENTS = {"StddevPop", "StddevSamp", "VariancePop", "VarianceSamp"}
KEPT = {"Count", "Min", "Max"} | ADDED | BY_OTHERS | MOMENTS
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
# A udf over single values, in Python or by Arrow: what takes whole columns sees several rows at once.
SINGLE_UDFS = {100, 101}
GATHERS = "{} keeps every value of its group: what it keeps grows with the events"
SKETCH = "what {} keeps is a sketch, and sketches are not added up here"
FIRST = "{} takes whichever event comes first"
REASONS = {
    "CollectList": GATHERS, "CollectSet": GATHERS, "ListAgg": GATHERS, "Percentile": GATHERS, "Median": GATHERS,
    "PercentileCont": GATHERS, "PercentileDisc": GATHERS, "Mode": GATHERS, "HyperLogLogPlusPlus": SKETCH,
    "ApproximatePercentile": SKETCH, "HllSketchAgg": SKETCH, "HllUnionAgg": SKETCH, "CountMinSketchAgg": SKETCH,
    "ApproxTopK": SKETCH, "First": FIRST, "Last": FIRST, "AnyValue": FIRST,
}  # fmt: skip
BELOW = {
    "Generate": "it makes several rows of one event",
    "Expand": "it groups in several ways at once",
    "Join": "it joins rows, and some of them may come in other micro-batches",
    "Union": "it takes its events several times",
    "Aggregate": "it aggregates twice",
    "Deduplicate": "it drops duplicates itself, and some of them may come in other micro-batches",
    "Distinct": "it drops duplicates itself, and some of them may come in other micro-batches",
}


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a pipeline needs a query of its own: one sentence, and the author's file:line where that is known."""

    pipeline: str
    reason: str
    where: str

    def __str__(self) -> str:
        return self.reason


def refusal(plan: Node, given: Sequence[DataFrame], pipeline: Pipeline) -> Refusal | None:
    """The first thing about a function's plan that keeps its rows from being added up; None where there is none."""
    for reason, at in objections(plan, Lineage(plan, given), pipeline):
        return Refusal(pipeline=pipeline.name, reason=reason, where=where_of(pipeline, at))
    return None


def objections(plan: Node, lineage: Lineage, pipeline: Pipeline) -> Iterator[tuple[str, Expression | None]]:
    yield from misplaced(plan)
    for node in plan.walk():
        for expression in node.expressions:
            for one, _ in expression.walk():
                yield from unsteady(one)
                if one.kind == "AggregateExpression":
                    yield from unkept(one, lineage, pipeline)


def misplaced(plan: Node) -> Iterator[tuple[str, Expression | None]]:
    """Nodes other than one aggregation with single rows below and above it."""
    above, aggregate = top_aggregate(plan)
    for node in above:
        if node.kind not in ROW_BY_ROW | {"Filter"}:
            yield f"{named(node)} stands above its aggregation", first_of(node)
    if aggregate is None:
        twice = any(node.kind == "Aggregate" for node in plan.walk())
        yield "rows meet above an aggregation" if twice else "it aggregates nothing: there is nothing to add up", None
        return
    if not aggregate.jvm.groupingExpressions().size():
        yield "it groups by nothing, not even its window", first_of(aggregate)
    for node in aggregate.below[0].walk():
        if node.kind not in ROW_BY_ROW | {GIVEN, "Filter"}:
            unknown = f"{named(node)} below its aggregation does not take events one by one"
            yield BELOW.get(node.kind, unknown), first_of(node)


def unsteady(one: Expression) -> Iterator[tuple[str, Expression]]:
    """What is another value for the same event at another time, or beside other events."""
    if one.kind in SUBQUERIES:
        yield f"it asks a subquery: {one.words}", one
    elif one.kind in CLOCKS or not one.jvm.deterministic():
        yield f"{one.words} is another value each time", one
    elif one.kind == "PythonUDF" and int(one.jvm.evalType()) not in SINGLE_UDFS:
        yield f"{one.words} is a udf over whole columns: it sees the events that come with one", one


def unkept(one: Expression, lineage: Lineage, pipeline: Pipeline) -> Iterator[tuple[str, Expression]]:
    """What of an aggregate cannot be kept in parts."""
    function = one.below[0]
    name = str(function.jvm.sql())
    if one.jvm.isDistinct():
        yield f"{name} takes each value once: parts would have to keep all values", one
    elif function.kind in CHOSEN:
        if not settled(function, None, lineage, pipeline):
            yield f"of events that are alike, {name} takes whichever comes first", one
    elif function.kind not in KEPT:
        reason = REASONS.get(function.kind, "there is no way here to add up {} of several micro-batches")
        yield reason.format(name), one
    elif function.kind in ADDED:
        kind = function.below[0].type
        if kind.split("(")[0] not in NUMBERS:
            yield f"{name} adds up {kind}, and only numbers are added up here", one
        elif str(function.jvm.prettyName()).startswith("try_") and kind not in ("double", "float"):
            yield f"whether {name} is null depends on what it adds up to on its way", one


def named(node: Node) -> str:
    return {"Sort": "an order", "GlobalLimit": "a limit", "LocalLimit": "a limit"}.get(node.kind, node.kind)


def first_of(node: Node) -> Expression | None:
    return node.expressions[0] if node.expressions else None
