"""Runs each definition once over empty frames: an unknown column, a missing key or a forbidden act shows at once."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.catalog.spec import Catalogue, Pipeline
from tally.engine import session
from tally.errors import DefinitionError, TallyError
from tally.sources.frames import applied_to_stream, as_given, flatten, with_window
from tally.speed.plan import plan_of, refuse, shape
from tally.speed.plan_rules import check_plan
from tally.speed.reach import check_reach

ACTIONS = ("collect", "count", "first", "foreach", "foreachPartition", "head", "isEmpty", "localCheckpoint", "show",
           "tail", "take", "toLocalIterator", "toPandas", "cache", "persist", "checkpoint")  # fmt: skip


def check_all(known: Catalogue) -> dict[str, list[TallyError]]:
    """The faults of each pipeline; an empty list is a good definition."""
    spark = session("tally-check")
    found: dict[str, list[TallyError]] = {}
    for pipeline in known.pipelines.values():
        try:
            check(spark, pipeline)
            found[pipeline.name] = []
        except TallyError as fault:
            found[pipeline.name] = [fault]
    return found


def check(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The flattened output over empty frames; raises at the author's line where the contract does not hold."""
    frames = []
    for at, topic in enumerate(pipeline.reads):
        frame = spark.createDataFrame([], topic.ddl)
        frames.append(frame if at else with_window(frame, pipeline))
    try:
        with forbidden_actions(pipeline):
            out = pipeline.function(*frames)
        rows = flatten(out, pipeline)
    except TallyError:
        raise
    except Exception as error:
        raise author_error(error, pipeline) from None
    plan = plan_of(out, frames)
    check_plan(plan, out.schema, frames, pipeline)
    check_streaming(spark, pipeline, shape(plan))
    return rows


def check_streaming(spark: SparkSession, pipeline: Pipeline, expected: list[str]) -> None:
    """Ask Spark whether the function can run as a stream in its output mode, and as it does over bounded frames."""
    frames = []
    for topic in pipeline.reads:
        ticks = spark.readStream.format("rate").load()
        columns = [F.lit(None).cast(f.type).alias(f.name) for f in topic.schema if f.name != topic.event_time]
        frames.append(ticks.select(F.col("timestamp").alias(topic.event_time), *columns).select(*topic.columns))
    jvm: Any = spark.sparkContext._jvm
    mode = jvm.org.apache.spark.sql.streaming.OutputMode
    try:
        given = as_given(frames, pipeline)
        out = applied_to_stream(pipeline, given)
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        plan = out._jdf.queryExecution().analyzed()
        checker.checkForStreaming(plan, mode.Append() if pipeline.append_only else mode.Update())
    except TallyError:
        raise
    except Exception as error:
        raise author_error(error, pipeline) from None
    check_reach(spark, plan, pipeline)
    if any(node.kind == "EventTimeWatermark" for node in plan_of(out, given).walk()):
        refuse(pipeline, "the function sets a watermark of its own", "say it in the topic: lateness=...")
    if shape(plan_of(pipeline.function(*given), given)) != expected:
        cure = "let the plan follow from nothing but the frames that it is given"
        refuse(pipeline, "the function does something else the second time, or over a stream", cure)


@contextmanager
def forbidden_actions(pipeline: Pipeline) -> Iterator[None]:
    """While a function runs, whatever would start a job raises instead."""
    classes = {DataFrame, *DataFrame.__subclasses__()}
    saved = [(kind, name, kind.__dict__[name]) for kind in classes for name in ACTIONS if name in kind.__dict__]

    def forbid(name: str) -> Any:
        def act(*_: Any, **__: Any) -> None:
            raise DefinitionError(
                f"the function acts: .{name}()",
                pipeline=pipeline.name,
                field="function",
                where=author_line(pipeline, traceback.extract_stack()) or pipeline.where,
                cure="return a DataFrame and let the engine run it",
            )

        return act

    for kind, name, _ in saved:
        setattr(kind, name, forbid(name))
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
