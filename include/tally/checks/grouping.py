"""Whether a function groups by its window and its key, no more and no less: then they tell its rows apart."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from tally.catalog.spec import Pipeline
from tally.checks.plan import GIVEN, Expression, Node, items, refuse


class Lineage:
    """Where the columns of a plan come from."""

    def __init__(self, plan: Node, given: Sequence[DataFrame]) -> None:
        self.made = {
            one.id: one.below[0]
            for node in plan.walk()
            for expression in node.expressions
            for one, _ in expression.walk()
            if one.kind == "Alias" and one.id is not None
        }
        self.given = {
            int(column.exprId().id()): (at, str(column.name()))
            for at, frame in enumerate(given)
            for column in items(frame._jdf.queryExecution().analyzed().output())
        }

    def origin(self, ident: int | None) -> tuple[int, str] | None:
        """The topic's number and the column that a column is, under whatever name."""
        while ident is not None and ident not in self.given:
            made = self.made.get(ident)
            ident = made.id if made is not None and made.kind == "AttributeReference" else None
        return None if ident is None else self.given[ident]

    def origins(self, expression: Expression) -> set[tuple[int, str] | None]:
        """The columns of the topics that a value is made of; None stands for what is of no topic."""
        found: set[tuple[int, str] | None] = set()
        for ident in expression.columns:
            made = self.made.get(ident)
            if ident in self.given or made is None:
                found.add(self.origin(ident))
            else:
                found |= self.origins(made)
        return found


def top_aggregate(plan: Node) -> tuple[list[Node], Node | None]:
    """The nodes above a function's last aggregation, and that one; None where there is none, or rows meet above it."""
    above: list[Node] = []
    node = plan
    while node.kind != "Aggregate":
        if len(node.below) != 1 or node.kind == GIVEN:
            return above, None
        above.append(node)
        node = node.below[0]
    return above, node


def check_grouping(plan: Node, lineage: Lineage, pipeline: Pipeline) -> None:
    """Refuse a function that does not group by exactly the window and the key; one that does not group is left be."""
    above, aggregate = top_aggregate(plan)
    if aggregate is None:
        return
    if pipeline.append_only and sum(node.kind == "Aggregate" for node in plan.walk()) > 1:
        refuse(pipeline, "it aggregates sessions twice", "group once, by the window and the key")
    groups = items(aggregate.jvm.groupingExpressions())
    columns = dict(plan.output)
    left = list(range(len(groups)))
    for name in ("window", *pipeline.key):
        found = grouped(columns[name], above, aggregate)
        places = [at for at in left if found is not None and found.jvm.semanticEquals(groups[at])]
        if not places:
            field = "window" if name == "window" else "key"
            refuse(
                pipeline, f"{name!r} is not what the function groups by", f"groupBy({wanted(pipeline)})", field=field
            )
        left = [at for at in left if at not in places]
        if name == "window" and found is not None and lineage.origin(found.id) != (0, "window"):
            cure = 'group by "window", the column that the engine gives'
            refuse(pipeline, "its window is not the one that it declares", cure, field="window")
    if left:
        missing = [label(groups[at], aggregate) for at in left]
        refuse(
            pipeline,
            f"it groups by {', '.join(map(repr, missing))} too: a window has several rows of one key",
            f"key=[{', '.join(map(repr_of, (*pipeline.key, *missing)))}], or group by {wanted(pipeline)} only",
            field="key",
        )


def wanted(pipeline: Pipeline) -> str:
    return ", ".join(map(repr_of, ("window", *pipeline.key)))


def repr_of(name: str) -> str:
    return f'"{name}"'


def grouped(ident: int, above: Sequence[Node], aggregate: Node) -> Expression | None:
    """What of an aggregation's output a column is, under whatever name; None where it is made above it."""
    made = {one.id: one.below[0] for node in above for one in node.expressions if one.kind == "Alias"}
    while ident in made:
        one = made[ident]
        if one.kind != "AttributeReference" or one.id is None:
            return None
        ident = one.id
    for one in aggregate.expressions:
        if one.id == ident:
            return one.below[0] if one.kind == "Alias" else one
    return None


def label(group: object, aggregate: Node) -> str:
    """How the author may know a grouping expression."""
    for one in aggregate.expressions:
        if one.kind == "Alias" and one.below[0].jvm.semanticEquals(group):
            return str(one.jvm.name())
    return str(group.name()) if hasattr(group, "name") else str(group.sql())  # type: ignore[attr-defined]
