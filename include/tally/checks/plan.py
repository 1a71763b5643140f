"""A function's analysed plan as Python values: nodes, their expressions, and the author's line of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import DataFrame

from tally.base.errors import DefinitionError
from tally.catalog.spec import Pipeline

# Nothing is below these: each question to the JVM takes a tenth of a millisecond, and there are thousands.
LEAVES = {"AttributeReference", "Literal"}
GIVEN = "Given"  # a frame that the engine handed to the function


@dataclass(frozen=True, kw_only=True)
class Expression:
    """One expression: its kind as Spark calls it, what is below it, the id of the column that it is or makes."""

    kind: str
    below: tuple[Expression, ...]
    id: int | None
    jvm: Any = field(compare=False)
    line: Callable[[], str | None] = field(compare=False)  # file:line of the call in Python that made it, where known

    def walk(self) -> Iterator[tuple[Expression, Expression | None]]:
        """Each expression from here down, with the one above it."""
        todo: list[tuple[Expression, Expression | None]] = [(self, None)]
        while todo:
            one, above = todo.pop()
            yield one, above
            todo += [(child, one) for child in one.below]

    @property
    def columns(self) -> set[int]:
        return {one.id for one, _ in self.walk() if one.kind == "AttributeReference" and one.id is not None}

    @property
    def words(self) -> str:
        """As Spark would show it, without the numbers of its columns."""
        return bare(self.jvm)

    @property
    def type(self) -> str:
        return str(self.jvm.dataType().simpleString())

    def is_same_as(self, other: Expression) -> bool:
        return bool(self.jvm.semanticEquals(other.jvm))


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node: its kind, the nodes below, its expressions; `given` is which of the engine's frames it is."""

    kind: str
    below: tuple[Node, ...] = ()
    given: int | None = None
    jvm: Any = field(compare=False)

    @cached_property
    def expressions(self) -> tuple[Expression, ...]:
        """None for a frame of the engine's own."""
        return tuple(expression_of(one) for one in items(self.jvm.expressions())) if self.given is None else ()

    @cached_property
    def output(self) -> tuple[tuple[str, int], ...]:
        """Name and id of each column."""
        return tuple((str(one.name()), int(one.exprId().id())) for one in items(self.jvm.output()))

    def walk(self) -> Iterator[Node]:
        yield self
        for node in self.below:
            yield from node.walk()


def plan_of(out: DataFrame, given: Sequence[DataFrame]) -> Node:
    """The plan of a function's output, down to the frames that it was given."""
    return node_of(out._jdf.queryExecution().analyzed(), [one._jdf.queryExecution().analyzed() for one in given])


def shape(plan: Node) -> list[str]:
    """What a plan does, in words that are the same whenever it is made anew."""
    return [
        node.kind if node.given is not None else f"{node.kind} {[bare(one) for one in items(node.jvm.expressions())]}"
        for node in plan.walk()
    ]


def bare(jvm: Any) -> str:
    """An expression without the numbers that Spark counts names by, and without the mark of an event time."""
    return re.sub(r"#\d+L?(-T\d+ms)?|(?<=[a-z])_\d+\b", "", str(jvm.toString()))


def node_of(jvm: Any, given: Sequence[Any]) -> Node:
    for at, frame in enumerate(given):
        if jvm.fastEquals(frame) or jvm.sameResult(frame):  # the second: a copy, where rows meet their own topic's
            return Node(kind=GIVEN, given=at, jvm=jvm)
    below = tuple(node_of(one, given) for one in items(jvm.children()))
    return Node(kind=str(jvm.nodeName()), below=below, jvm=jvm)


def expression_of(jvm: Any, line_above: Callable[[], str | None] = lambda: None) -> Expression:
    kind = str(jvm.getClass().getSimpleName())

    def line() -> str | None:
        return line_of(jvm) or line_above()

    return Expression(
        kind=kind,
        below=() if kind in LEAVES else tuple(expression_of(one, line) for one in items(jvm.children())),
        id=int(jvm.exprId().id()) if kind in ("AttributeReference", "Alias") else None,
        jvm=jvm,
        line=line,
    )


def line_of(jvm: Any) -> str | None:
    context = jvm.origin().pysparkErrorContext()
    return str(context.get()._2()) if context.isDefined() else None


def refuse(
    pipeline: Pipeline, message: str, cure: str, at: Expression | None = None, *, field: str = "function"
) -> NoReturn:
    """Raise at the line of an expression where that stands in the catalogue, else at the pipeline's."""
    raise DefinitionError(message, pipeline=pipeline.name, field=field, where=where_of(pipeline, at), cure=cure)


def where_of(pipeline: Pipeline, at: Expression | None) -> str:
    """The author's file:line of an expression where that stands in the catalogue, else the pipeline's."""
    folder = Path(pipeline.file).parents[1]
    line = at.line() if at is not None else None
    return line if line is not None and Path(line).is_relative_to(folder) else pipeline.where


def items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
