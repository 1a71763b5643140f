"""One topic with a column of each type, and pipelines of it for the tests of parts."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from tally.catalog.declare import pipeline, topic, tumbling
from tally.catalog.spec import Pipeline
from tally.kinds import kind_of
from tally.parts import Function, Split

EVENTS = topic(
    "events",
    schema="""
        id BIGINT, zone INT, fare DOUBLE, tip FLOAT, cents BIGINT, small SMALLINT, price DECIMAL(10,2),
        wide DECIMAL(38,18), name STRING, paid BOOLEAN, day DATE, at TIMESTAMP
    """,
    event_time="at",
    lateness="1 minute",
    unique="id",
)


def of(transform: Callable[[DataFrame], DataFrame], *key: str) -> Pipeline:
    """A pipeline in minutes whose function this is."""

    @pipeline(reads=EVENTS, window=tumbling("1 minute"), key=list(key or ("zone",)))
    def rows(events: DataFrame) -> DataFrame:
        return transform(events)

    return rows


def split_of(spark: SparkSession, declared: Pipeline) -> Split:
    found = Function(spark, declared).in_two
    assert isinstance(found, Split), found
    return found


def rows_of(
    spark: SparkSession, declared: Pipeline, frame: DataFrame, pieces: list[DataFrame]
) -> tuple[DataFrame, DataFrame]:
    """The function's rows over a frame of its topic, and those of the parts of its pieces, added up in two steps."""
    kind, split = kind_of(declared), split_of(spark, declared)
    parts = [split.parts(kind.bounded([piece])[0]) for piece in pieces]
    begun, rest = parts[0], parts[-1]
    for one in parts[1:2]:
        begun = begun.union(one)
    for one in parts[2:-1]:
        rest = rest.union(one)
    together = split.added(begun)
    if len(parts) > 2:
        together = split.added(rest.union(together))
    return declared.function(*kind.bounded([frame])), split.finished(together)
