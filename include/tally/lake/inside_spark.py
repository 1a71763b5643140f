"""What Spark does not give in public, from inside its JVM classes: plans taken apart and put on other rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One aggregate of a plan: the function, its filter if any, and what stands for its result above it."""

    function: Any
    filter: Any | None
    result: Any

    @property
    def kind(self) -> str:
        """As Spark calls it: the name of its class; "... of UnscaledValue" where DECIMALs lose their point."""
        return " of ".join(named(one) for one in (self.function, *filter(is_unscaled, items(self.function.children()))))

    @property
    def arguments(self) -> list[Any]:
        """What it is given; DECIMALs whole."""
        return [one.child() if is_unscaled(one) else one for one in items(self.function.children())]

    @property
    def state(self) -> list[Any]:
        """The attributes of what Spark keeps of the rows that it has seen, in its own order."""
        return items(self.function.aggBufferAttributes())

    @property
    def evaluated(self) -> Any:
        """What comes of that state, as an expression over its attributes."""
        return self.function.evaluateExpression()


@dataclass(frozen=True, kw_only=True)
class Aggregation:
    """An Aggregate taken apart, as Spark's planner does: `results` name its groups and its measures' results."""

    groups: Sequence[Any]
    measures: Sequence[Measure]
    results: Sequence[Any]
    below: Any


@dataclass(frozen=True, kw_only=True)
class Template:
    """A plan that is one chain of nodes down to a leaf, to be put over other rows of the leaf's columns."""

    spark: SparkSession
    bottom: Any  # the leaf's own plan
    types: Mapping[str, str]
    above: Sequence[Any]  # from the leaf upwards

    @classmethod
    def of(cls, out: DataFrame, given: DataFrame) -> Template:
        """The chain from `out` down to the plan of `given`, which must stand in it; a plan of branches is an error."""
        leaf, node, above = plan_of(given), plan_of(out), []
        while not node.fastEquals(leaf):
            if node.children().size() != 1:
                raise ValueError(f"{node.nodeName()} ends no chain to the frame that was given")
            above.append(node)
            node = node.children().apply(0)
        return cls(
            spark=out.sparkSession,
            bottom=leaf,
            types={field.name: field.dataType.simpleString() for field in given.schema.fields},
            above=tuple(reversed(above)),
        )

    @cached_property
    def columns(self) -> Mapping[str, Bound]:
        """The leaf's."""
        return {str(one.name()): Bound.to(one) for one in items(self.bottom.output())}

    def over(self, frame: DataFrame) -> DataFrame:
        """The same over another frame, by the names of its columns: it may have more, in any order.

        One that is missing or of another type is an error: Spark would take its bytes for what the plan knows.
        """
        return self.on(self.leaf(frame))

    def leaf(self, frame: DataFrame) -> Any:
        """The plan of such a frame as the leaf: it will do for all templates over the same given frame."""
        there = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for name, kind in self.types.items():
            if there.get(name) != kind:
                raise ValueError(f"column {name} is {there.get(name, 'not there')}, and was {kind}")
        return renamed(frame, self.columns)

    def on(self, leaf: Any, spark: SparkSession | None = None) -> DataFrame:
        """The same over such a leaf; `spark` is the session that is to run it, where it is another one."""
        return frame_of(on_top(self.above, leaf), spark or self.spark)

    @property
    def nodes(self) -> list[str]:
        """What its nodes are called, from the leaf upwards."""
        return [str(node.nodeName()) for node in self.above]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What makes an expression the very attribute that other nodes of a plan know: its id, name and words about it."""

    name: str
    id: Any
    words: Any
    nullable: bool
    none: Any

    @classmethod
    def to(cls, attribute: Any) -> Bound:
        return cls(
            name=str(attribute.name()),
            id=attribute.exprId(),
            words=attribute.toAttribute().metadata(),
            nullable=bool(attribute.nullable()),
            none=attribute.qualifier().take(0),
        )

    def by(self, inside: Classes, expression: Any) -> Any:
        """That attribute, as this expression."""
        return inside.alias(expression, self.name, self.id, self.none, inside.option.apply(self.words), self.none)


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes that are asked each micro-batch: to find one by its name takes as many calls as that has dots."""

    alias: Any
    not_null: Any
    project: Any
    option: Any
    dataset: Any
    sequences: Any


@cache
def in_jvm(spark: SparkSession, name: str) -> Any:
    """A class of the JVM, or an object, by its whole name.

    Dot by dot, each part of the name would first be looked for as a class, in each of some three hundred jars.
    """
    return getattr(spark.sparkContext._jvm, name)


@cache
def classes(spark: SparkSession) -> Classes:
    sql = "org.apache.spark.sql"
    return Classes(
        alias=in_jvm(spark, f"{sql}.catalyst.expressions.Alias"),
        not_null=in_jvm(spark, f"{sql}.catalyst.expressions.KnownNotNull"),
        project=in_jvm(spark, f"{sql}.catalyst.plans.logical.Project"),
        option=in_jvm(spark, "scala.Option"),
        dataset=in_jvm(spark, f"{sql}.classic.Dataset"),
        sequences=in_jvm(spark, "org.apache.spark.api.python.PythonUtils"),
    )


def plan_of(frame: DataFrame) -> Any:
    """A frame's plan, analysed."""
    return frame._jdf.queryExecution().analyzed()


def frame_of(plan: Any, spark: SparkSession) -> DataFrame:
    """A plan's rows as a frame; what in it has no type yet is analysed."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    return ClassicFrame(classes(spark).dataset.ofRows(spark._jsparkSession, plan), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    """An expression of a plan as a column, to be used over a frame of that plan."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    return ClassicColumn(in_jvm(spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def replaced(spark: SparkSession, plan: Any) -> Any:
    """The plan with each function that Spark defines by others (count_if, bool_and) as those."""
    return in_jvm(spark, "org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions").apply(plan)


def aggregation(spark: SparkSession, aggregate: Any) -> Aggregation:
    """An Aggregate's groups and measures, each once, and its results in terms of them.

    Of DECIMALs of few digits they are what Spark's optimizer makes of them: an average is then one of DOUBLE.
    """
    catalyst = "org.apache.spark.sql.catalyst"
    optimized = in_jvm(spark, f"{catalyst}.optimizer.DecimalAggregates").apply(aggregate)
    apart = in_jvm(spark, f"{catalyst}.planning.PhysicalAggregation").unapply(optimized).get()
    measures = [
        Measure(
            function=one.aggregateFunction(),
            filter=one.filter().get() if one.filter().isDefined() else None,
            result=one.resultAttribute(),
        )
        for one in items(apart._2())
    ]
    return Aggregation(groups=items(apart._1()), measures=measures, results=items(apart._3()), below=apart._4())


def named(expression: Any) -> str:
    """What Spark calls this kind of expression: the name of its class."""
    return str(expression.getClass().getSimpleName())


def is_unscaled(expression: Any) -> bool:
    return named(expression) == "UnscaledValue"


def bound(spark: SparkSession, expression: Any, attribute: Any) -> Any:
    """An expression as the very attribute that other nodes of a plan know it by."""
    return Bound.to(attribute).by(classes(spark), expression)


def project(spark: SparkSession, columns: Iterable[Any], below: Any) -> Any:
    """A node that gives these columns."""
    return classes(spark).project(sequence(spark, columns), below)


def renamed(frame: DataFrame, wanted: Mapping[str, Bound]) -> Any:
    """The plan of a frame with its columns of these names as these attributes; one never null is taken to be so."""
    inside, plan = classes(frame.sparkSession), plan_of(frame)
    output, columns = plan.output(), []
    for at, field in enumerate(frame.schema.fields):
        attribute = wanted.get(field.name)
        if attribute is not None:
            one = output.apply(at)
            sure = field.nullable and not attribute.nullable
            columns.append(attribute.by(inside, inside.not_null(one) if sure else one))
    return project(frame.sparkSession, columns, plan)


def on_top(nodes: Iterable[Any], below: Any) -> Any:
    """A chain of nodes, from below, on top of another plan."""
    for node in nodes:
        below = node.withNewChildren(node.children().updated(0, below))
    return below


def items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


def sequence(spark: SparkSession, elements: Iterable[Any]) -> Any:
    return classes(spark).sequences.toSeq(list(elements))
