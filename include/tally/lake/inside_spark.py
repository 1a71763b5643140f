"""What Spark does not give in public, from inside its JVM classes: plans taken apart and put on other rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
        """As Spark calls it: the name of its class."""
        return str(self.function.getClass().getSimpleName())

    @property
    def arguments(self) -> list[Any]:
        return items(self.function.children())

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
    leaf: Any
    above: Sequence[Any]  # from the leaf upwards
    types: Mapping[str, str]  # of the leaf's columns

    @classmethod
    def of(cls, out: DataFrame, given: DataFrame) -> Template:
        """The chain from `out` down to the plan of `given`, which must stand in it; a plan of branches is an error."""
        leaf, node, above = plan_of(given), plan_of(out), []
        while not node.fastEquals(leaf):
            if node.children().size() != 1:
                raise ValueError(f"{node.nodeName()} ends no chain to the frame that was given")
            above.append(node)
            node = node.children().apply(0)
        types = {field.name: field.dataType.simpleString() for field in given.schema.fields}
        return cls(spark=out.sparkSession, leaf=leaf, above=tuple(reversed(above)), types=types)

    def over(self, frame: DataFrame) -> DataFrame:
        """The same over another frame, by the names of its columns: it may have more, in any order.

        One that is missing or of another type is an error: Spark would take its bytes for what the plan knows.
        """
        there = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        for name, kind in self.types.items():
            if there.get(name) != kind:
                raise ValueError(f"column {name} is {there.get(name, 'not there')}, and was {kind}")
        columns = {str(one.name()): one for one in items(self.leaf.output())}
        return frame_of(on_top(self.above, renamed(self.spark, plan_of(frame), columns)), self.spark)


def plan_of(frame: DataFrame) -> Any:
    """A frame's plan, analysed."""
    return frame._jdf.queryExecution().analyzed()


def frame_of(plan: Any, spark: SparkSession) -> DataFrame:
    """A plan's rows as a frame; what in it has no type yet is analysed."""
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    jvm: Any = spark.sparkContext._jvm
    return ClassicFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


def column_of(spark: SparkSession, expression: Any) -> Column:
    """An expression of a plan as a column, to be used over a frame of that plan."""
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm: Any = spark.sparkContext._jvm
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def replaced(spark: SparkSession, plan: Any) -> Any:
    """The plan with each function that Spark defines by others (count_if, bool_and) as those."""
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions.apply(plan)


def aggregation(spark: SparkSession, aggregate: Any) -> Aggregation:
    """An Aggregate's groups and measures, each once, and its results in terms of them."""
    jvm: Any = spark.sparkContext._jvm
    apart = jvm.org.apache.spark.sql.catalyst.planning.PhysicalAggregation.unapply(aggregate).get()
    measures = [
        Measure(
            function=one.aggregateFunction(),
            filter=one.filter().get() if one.filter().isDefined() else None,
            result=one.resultAttribute(),
        )
        for one in items(apart._2())
    ]
    return Aggregation(groups=items(apart._1()), measures=measures, results=items(apart._3()), below=apart._4())


def bound(spark: SparkSession, expression: Any, attribute: Any) -> Any:
    """An expression as the very attribute that other nodes of a plan know it by: same id, name and words about it."""
    jvm: Any = spark.sparkContext._jvm
    none, words = sequence(spark, []), jvm.scala.Option.apply(attribute.metadata())
    inside = jvm.org.apache.spark.sql.catalyst.expressions
    return inside.Alias(expression, attribute.name(), attribute.exprId(), none, words, none)


def project(spark: SparkSession, columns: Iterable[Any], below: Any) -> Any:
    """A node that gives these columns."""
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(sequence(spark, columns), below)


def renamed(spark: SparkSession, plan: Any, attributes: Mapping[str, Any]) -> Any:
    """A plan whose columns of these names are these very attributes; one that is never null is taken to be so."""
    jvm: Any = spark.sparkContext._jvm
    known = jvm.org.apache.spark.sql.catalyst.expressions.KnownNotNull
    there = {str(one.name()): one for one in items(plan.output())}
    columns = []
    for name, attribute in attributes.items():
        sure = there[name].nullable() and not attribute.nullable()
        columns.append(bound(spark, known(there[name]) if sure else there[name], attribute))
    return project(spark, columns, plan)


def on_top(nodes: Iterable[Any], below: Any) -> Any:
    """A chain of nodes, from below, on top of another plan."""
    for node in nodes:
        below = node.withNewChildren(node.children().updated(0, below))
    return below


def items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


def sequence(spark: SparkSession, elements: Iterable[Any]) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(elements))
