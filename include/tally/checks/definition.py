"""Runs each definition once over empty frames: an unknown column, a missing key or a forbidden act shows at once."""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.base.errors import DefinitionError, TallyError
from tally.catalog.spec import Catalogue, Pipeline
from tally.checks.plan import Node, items, plan_of, refuse, shape
from tally.checks.plan_rules import check_plan
from tally.checks.reach import check_reach
from tally.kinds import kind_of
from tally.kinds.frames import MARK, called
from tally.lake.inside_spark import in_jvm
from tally.lake.session import session

ACTIONS = ("collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty", "localCheckpoint", "show",
           "tail", "take", "toLocalIterator", "toPandas", "cache", "persist", "checkpoint")  # fmt: skip


ONE_AT_A_TIME = threading.Lock()  # what each puts back is what was there before all of them


def check_all(known: Catalogue) -> dict[str, list[TallyError]]:
    """The faults of each pipeline; an empty list is a good definition."""
    spark = session("tally-check", brief=True)
    found: dict[str, list[TallyError]] = {}
    for pipeline in known.pipelines.values():
        try:
            check(spark, pipeline)
            found[pipeline.name] = []
        except TallyError as fault:
            found[pipeline.name] = [fault]
    return found


class Definition:
    """A pipeline, and what its function does over frames without events: tried once, for all who look at it."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark, self.pipeline = spark, pipeline
        self.good = False  # it was checked

    @cached_property
    def given(self) -> list[DataFrame]:
        return once(self.spark, self.pipeline, bounded)

    @cached_property
    def out(self) -> DataFrame:
        with blamed_on_author(self.pipeline), forbidden_actions(self.pipeline):
            return called(self.pipeline, self.given)

    @cached_property
    def plan(self) -> Node:
        return plan_of(self.out, self.given)

    @cached_property
    def rows(self) -> DataFrame:
        """Flattened as every speed and batch row is."""
        with blamed_on_author(self.pipeline):
            return kind_of(self.pipeline).flattened(self.out)

    def check(self) -> None:
        """Raise at the author's line where the contract does not hold."""
        if self.good:
            return
        with blamed_on_author(self.pipeline):
            assert self.rows is not None
            check_plan(self.plan, self.out.schema, self.given, self.pipeline)
            check_streaming(self.spark, self.pipeline, shape(self.plan))
        self.good = True


def check(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The flattened output over empty frames; raises at the author's line where the contract does not hold."""
    definition = Definition(spark, pipeline)
    definition.check()
    return definition.rows


@contextmanager
def blamed_on_author(pipeline: Pipeline) -> Iterator[None]:
    """What Spark complains of is the author's; also where it works a constant out long after the function has ended."""
    try:
        yield
    except TallyError:
        raise
    except Exception as error:
        raise author_error(error, pipeline) from None


def check_streaming(spark: SparkSession, pipeline: Pipeline, expected: list[str]) -> None:
    """Ask Spark whether the function can run as a stream in its output mode, and as it does over bounded frames."""
    mode = in_jvm(spark, "org.apache.spark.sql.streaming.OutputMode")
    kind = kind_of(pipeline)
    given = once(spark, pipeline, unbounded)
    out = kind.streamed(given)
    checker = in_jvm(spark, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    plan = out._jdf.queryExecution().analyzed()
    checker.checkForStreaming(plan, mode.Append() if pipeline.append_only else mode.Update())
    check_reach(spark, plan, pipeline)
    check_times(spark, plan, pipeline)
    if any(node.kind == "EventTimeWatermark" for node in plan_of(out, given).walk()):
        refuse(pipeline, "the function sets a watermark of its own", "say it in the topic: lateness=...")
    if shape(plan_of(called(pipeline, given), given)) != expected:
        cure = "let the plan follow from nothing but the frames that it is given"
        refuse(pipeline, "the function does something else the second time, or over a stream", cure)


# What the functions of one topic and window are given is the same for all of them, and takes half as long as they do.
given_to: dict[tuple[object, ...], list[DataFrame]] = {}
Make = Callable[[SparkSession, Pipeline], list[DataFrame]]


def once(spark: SparkSession, pipeline: Pipeline, make: Make) -> list[DataFrame]:
    """The frames that a function is given, made for the first that asks."""
    key = (spark, make, pipeline.reads, pipeline.window)
    if key not in given_to:
        given_to[key] = make(spark, pipeline)
    return given_to[key]


def bounded(spark: SparkSession, pipeline: Pipeline) -> list[DataFrame]:
    """Frames without events."""
    return kind_of(pipeline).empty(spark)


def unbounded(spark: SparkSession, pipeline: Pipeline) -> list[DataFrame]:
    """Frames of events that never come."""
    frames = []
    for topic in pipeline.reads:
        ticks = spark.readStream.format("rate").load()
        columns = [F.lit(None).cast(f.type).alias(f.name) for f in topic.schema if f.name != topic.event_time]
        frames.append(ticks.select(F.col("timestamp").alias(topic.event_time), *columns).select(*topic.columns))
    return kind_of(pipeline).unbounded(frames)


def check_times(spark: SparkSession, plan: Any, pipeline: Pipeline) -> None:
    """Refuse where two event times meet in one operator that keeps state: Spark fails there on the first event."""
    optimized = spark._jsparkSession.sessionState().optimizer().execute(plan)
    for operator in (node for node in nodes(optimized) if node.nodeName() in ("Join", "Aggregate")):
        for below in items(operator.children()):
            times = sorted(str(one.name()) for one in items(below.output()) if one.metadata().contains(MARK))
            if below.isStreaming() and len(times) > 1:
                where = operator.nodeName().lower()
                cure = "give each a name of its own before they are joined; drop what is not needed after it"
                refuse(pipeline, f"several event times meet in its {where}: {', '.join(times)}", cure)


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for below in items(plan.children()):
        yield from nodes(below)


@contextmanager
def forbidden_actions(pipeline: Pipeline) -> Iterator[None]:
    """While a function runs, whatever would start a job raises instead; other threads do what they always do."""
    mine = threading.get_ident()
    classes = {DataFrame, *DataFrame.__subclasses__()}

    def forbid(name: str, method: Any) -> Any:
        def act(*given: Any, **options: Any) -> Any:
            if threading.get_ident() != mine:
                return method(*given, **options)
            raise DefinitionError(
                f"the function acts: .{name}()",
                pipeline=pipeline.name,
                field="function",
                where=author_line(pipeline, traceback.extract_stack()) or pipeline.where,
                cure="return a DataFrame and let the engine run it",
            )

        return act

    with ONE_AT_A_TIME:
        saved = [(kind, name, kind.__dict__[name]) for kind in classes for name in ACTIONS if name in kind.__dict__]
        for kind, name, method in saved:
            setattr(kind, name, forbid(name, method))
        try:
            yield
        finally:
            for kind, name, method in saved:
                setattr(kind, name, method)


def author_error(error: Exception, pipeline: Pipeline) -> DefinitionError:
    """Spark's complaint with the author's line, and the names that there are where a column is unknown."""
    text = str(error).split("== DataFrame ==")[0].strip()
    message = text.splitlines()[0] if text else type(error).__name__
    message = re.sub(r"\s*SQLSTATE: \w+", "", message)
    unknown = "UNRESOLVED_COLUMN" in message
    columns = sorted({name for topic in pipeline.reads for name in topic.columns} | {"window"})
    return DefinitionError(
        message[:400],
        pipeline=pipeline.name,
        field="function",
        where=author_line(pipeline, traceback.extract_tb(error.__traceback__)) or pipeline.where,
        cure=f"the columns are: {', '.join(columns)}" if unknown else "mend the function",
    )


def author_line(pipeline: Pipeline, frames: traceback.StackSummary) -> str | None:
    mine = [frame for frame in frames if Path(frame.filename) == Path(pipeline.file)]
    return f"{mine[-1].filename}:{mine[-1].lineno}" if mine else None
