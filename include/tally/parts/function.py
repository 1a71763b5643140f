"""A pipeline's function, and what is found out about it: each thing once, by whoever asks first."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import SparkSession

from tally.catalog.spec import Pipeline
from tally.checks.definition import Definition
from tally.kinds import kind_of
from tally.parts.combine import in_two
from tally.parts.made_here import MadeHere
from tally.parts.rules import Refusal
from tally.parts.split import Split


class Function:
    """What it does over no events, whether it can be taken in two, and what of it is made outside Spark."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark, self.pipeline, self.definition = spark, pipeline, Definition(spark, pipeline)

    @cached_property
    def in_two(self) -> Split | Refusal:
        return in_two(self.definition)

    @property
    def split(self) -> Split:
        """In two, where it is known that it can be."""
        assert isinstance(self.in_two, Split)
        return self.in_two

    @cached_property
    def here(self) -> MadeHere:
        """What of it is made outside Spark, where it is in two."""
        events = self.spark.createDataFrame([], self.pipeline.reads[0].ddl)
        return MadeHere.of(kind_of(self.pipeline), self.split, events)
