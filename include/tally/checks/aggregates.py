"""Aggregates that give the same whatever the order of the events, and what may be made of sums of doubles."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from tally.catalog.spec import Pipeline, Topic
from tally.checks.grouping import Lineage
from tally.checks.plan import Expression, Node, refuse
from tally.kinds import kind_of

ORDER_FREE = {
    "Count", "CountIf", "Sum", "Average", "Min", "Max", "BoolAnd", "BoolOr", "BitAndAgg", "BitOrAgg", "BitXorAgg",
    "StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "CovPopulation", "CovSample", "Corr", "Skewness",
    "Kurtosis", "RegrCount", "RegrAvgX", "RegrAvgY", "RegrR2", "RegrSXX", "RegrSXY", "RegrSYY", "RegrSlope",
    "RegrIntercept", "HyperLogLogPlusPlus", "Percentile", "Median", "PercentileCont", "PercentileDisc",
    "Product", "BitmapConstructAgg", "BitmapOrAgg", "BitmapAndAgg",
}  # fmt: skip
# Of these the partial results are added in floating point, whatever they are made of.
ALWAYS_ROUNDED = {name for name in ORDER_FREE if name.startswith(("Stddev", "Var", "Cov", "Corr", "Skew", "Kurt"))}
ALWAYS_ROUNDED |= {name for name in ORDER_FREE if name.startswith("Regr") and name != "RegrCount"} | {"Product"}
COLLECTED = {"CollectList", "CollectSet"}
# What makes of a collected array the same in any order.
LEVEL = {"SortArray", "Size", "ArrayMax", "ArrayMin", "Cardinality"}
OWN_ORDER = re.compile(
    r"if \(\(isnull\(lambda left\) AND isnull\(lambda right\)\)\) 0 else if \(isnull\(lambda left\)\) 1 "
    r"else if \(isnull\(lambda right\)\) -1 else if \(\(lambda left < lambda right\)\) -1 "
    r"else if \(\(lambda left > lambda right\)\) 1 else 0"
)
CURES = {
    "CollectList": "sort what it gathers, at once: F.array_sort(F.collect_list(...))",
    "CollectSet": "sort what it gathers, at once: F.array_sort(F.collect_set(...))",
    "ApproximatePercentile": "F.percentile(...) is exact and the same in any order",
    "Sum": "F.sum of a type that has room: F.sum(F.col(x).cast('decimal(28,0)'))",
    "Average": "F.avg of a type that has room: F.avg(F.col(x).cast('decimal(28,4)'))",
    "Mode": "F.mode(column, True) takes the least of equally frequent values",
    "MaxBy": 'end the order with what decides: F.max_by("x", F.struct("at", "x")), or with event time and unique id',
    "MinBy": 'end the order with what decides: F.min_by("x", F.struct("at", "x")), or with event time and unique id',
    "ListAgg": "LISTAGG(x, ',') WITHIN GROUP (ORDER BY x), or F.array_join(F.array_sort(F.collect_list(...)), ',')",
    "PythonUDAF": "use Spark's own aggregates, or gather: F.array_sort(F.collect_list(...)) and a udf over the array",
}
NAMED = "name the order: F.min_by or F.max_by of a struct that ends with the value itself"
TO_TEXT = {"Cast", "FormatString", "FormatNumber", "StructsToJson", "StructsToCsv", "StructsToXml", "ToPrettyString"}
FLOATING = re.compile("double|float")
# Small changes of what these are given change what they give a little.
SMOOTH = {
    "Alias", "Add", "Subtract", "Multiply", "Divide", "TryAdd", "TrySubtract", "TryMultiply", "TryDivide", "UnaryMinus",
    "UnaryPositive", "Abs", "Coalesce", "Nvl", "NullIf", "NaNvl", "Greatest", "Least", "If", "CaseWhen", "KnownNotNull",
    "KnownNullable", "KnownFloatingPointNormalized", "NormalizeNaNAndZero",
}  # fmt: skip
# Of 0.0 and of -0.0 these give the same, but for the sign of a zero.
SAME_OF_ZEROS = SMOOTH | {
    "EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "And", "Or", "Not",
    "In", "IsNull", "IsNotNull", "IsNaN", "Round", "BRound", "Floor", "Ceil", "RoundFloor", "RoundCeil",
    "CreateNamedStruct", "CreateArray", "GetStructField",
}  # fmt: skip


def check_order(plan: Node, lineage: Lineage, pipeline: Pipeline) -> None:
    """Refuse each aggregate whose value may depend on the order in which events are met."""
    for node in plan.walk():
        for expression in node.expressions:
            for one, above in expression.walk():
                if one.kind == "AggregateExpression" and not settled(one.below[0], above, lineage, pipeline):
                    kind, name = one.below[0].kind, str(one.below[0].jvm.prettyName())
                    message = f"what {name}() gives depends on the order in which events come"
                    refuse(pipeline, message, CURES.get(kind, NAMED), one)


def settled(function: Expression, above: Expression | None, lineage: Lineage, pipeline: Pipeline) -> bool:
    """Whether the events alone decide what an aggregate gives."""
    if any("collate" in child.type.lower() for child in function.below):
        return False  # texts that count as the same are not the same
    if function.kind in COLLECTED:
        return above is not None and (above.kind in LEVEL or has_own_order(above))
    if function.kind in ("MaxBy", "MinBy"):
        return decided(function.below[0], function.below[1:2], lineage, pipeline)
    if function.kind == "ListAgg":
        orders = [child.below[0] for child in function.below if child.kind == "SortOrder"]
        return decided(function.below[0], orders, lineage, pipeline)
    if function.kind in ("Sum", "Average") and str(function.jvm.prettyName()).startswith("try_"):
        return function.below[0].type in ("double", "float")  # whether it overflows on its way is a matter of order
    if function.kind == "Mode":
        return bool(function.jvm.reverseOpt().isDefined())
    return function.kind in ORDER_FREE


def has_own_order(above: Expression) -> bool:
    """Whether an array is sorted by its values, and not by a comparison of the author's."""
    return above.kind == "ArraySort" and bool(OWN_ORDER.search(above.below[1].words))


def decided(value: Expression, orders: Sequence[Expression], lineage: Lineage, pipeline: Pipeline) -> bool:
    """Whether of two events that are alike in an order, the value is the same too."""
    parts = [part for order in orders for part in parts_of(order, lineage)]
    if any(value.is_same_as(part) for part in parts):
        return True
    told = {lineage.origin(part.id) for part in parts if not FLOATING.search(part.type)} - {None}
    nearly = {lineage.origin(part.id) for part in parts} - {None}  # 0.0 and -0.0 are alike in an order
    unique = {at for at, topic in enumerate(pipeline.reads) if tells_apart(nearly, at, topic, pipeline)}
    origins = lineage.origins(value)
    left = {origin for origin in origins if origin not in told and (origin is None or origin[0] not in unique)}
    return left <= nearly and same_of_zeros(value, left, lineage)


def tells_apart(told: Set[tuple[int, str] | None], at: int, topic: Topic, pipeline: Pipeline) -> bool:
    """Whether columns tell the events of a window apart: of one id, those further apart than the lateness stay."""
    longest = kind_of(pipeline).longest
    once = longest is not None and longest <= topic.lateness
    return (at, topic.unique) in told and (once or (at, topic.event_time) in told)


def same_of_zeros(value: Expression, among: Set[tuple[int, str] | None], lineage: Lineage) -> bool:
    """Whether a value made of these columns is the same, but for the sign of a zero, where 0.0 is one and -0.0."""
    if among.isdisjoint(lineage.origins(value)):
        return True
    if value.kind == "AttributeReference":
        made = lineage.made.get(value.id or -1)
        return made is None or same_of_zeros(made, among, lineage)
    if value.kind not in SAME_OF_ZEROS and (value.kind != "Cast" or is_text(value)):
        return False
    return all(same_of_zeros(child, among, lineage) for child in value.below)


def parts_of(order: Expression, lineage: Lineage) -> list[Expression]:
    """The columns that an order compares, one after the other."""
    made = lineage.made.get(order.id or -1)
    if order.kind == "AttributeReference" and lineage.origin(order.id) is None and made is not None:
        return [order, *parts_of(made, lineage)]
    if order.kind == "CreateNamedStruct":
        return [part for child in order.below[1::2] for part in parts_of(child, lineage)]
    return [order]


def check_rounding(plan: Node, pipeline: Pipeline) -> None:
    """Refuse steps made of a sum of doubles: two orders of its events can fall on different sides of a step."""
    rounded: set[int] = set()
    for node in reversed(list(plan.walk())):  # from below
        for expression in node.expressions:
            if is_rounded(expression, rounded, pipeline) and expression.id is not None:
                rounded.add(expression.id)


def is_rounded(expression: Expression, rounded: set[int], pipeline: Pipeline) -> bool:
    """Whether the last digits of a value depend on the order of the events."""
    if expression.kind == "AttributeReference":
        return expression.id in rounded
    if expression.kind == "AggregateExpression":
        return adds_doubles(expression.below[0])
    of_what = [is_rounded(child, rounded, pipeline) for child in expression.below]
    if not any(of_what) or expression.kind in ("IsNull", "IsNotNull"):
        return False
    chosen = {"If": of_what[:1], "CaseWhen": of_what[0 : len(of_what) // 2 * 2 : 2]}.get(expression.kind, [])
    if expression.kind in SMOOTH and not any(chosen):
        return True
    if expression.kind == "Cast" and expression.type == "double":
        return True
    step = "nullif" if expression.kind.startswith("CommonExpression") else expression.kind.lower()
    refuse(
        pipeline,
        f"{step} makes steps of a sum of doubles, whose last digits depend on the order of events",
        "sum a DECIMAL: F.sum(F.col(x).cast('decimal(38,6)')), or give the plain sum as the measure",
        expression,
    )


def check_zeros(plan: Node, pipeline: Pipeline) -> None:
    """Refuse text of a double that was chosen among others: 0.0 and -0.0 are equal, and which one stays is chance."""
    chosen: set[int] = set()
    for node in reversed(list(plan.walk())):  # from below
        for expression in node.expressions:
            parts = [one for one, _ in expression.walk()]
            if not any(one.kind == "AggregateExpression" or one.id in chosen for one in parts):
                continue
            if expression.id is not None:
                chosen.add(expression.id)
            for one in parts:
                of_chosen = any(part.kind == "AggregateExpression" or part.id in chosen for part, _ in one.walk())
                if is_text(one) and of_chosen and any(FLOATING.search(child.type) for child in one.below):
                    cure = "give the number itself, or a DECIMAL: its text follows from it"
                    refuse(pipeline, "it makes text of a double that it chose among equal ones: 0.0 or -0.0", cure, one)


def is_text(one: Expression) -> bool:
    return one.kind in TO_TEXT and "string" in one.type


def adds_doubles(function: Expression) -> bool:
    if function.kind in ("Sum", "Average"):
        return function.below[0].type in ("double", "float")
    return function.kind in ALWAYS_ROUNDED
