"""Functions of pipelines whose streams are about to begin, looked at ahead of their turn.

To look at one takes Python and the JVM in turn, and so does the rest of a start: each waits while the other works.
Beside each other, both do.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from pyspark.sql import SparkSession

from tally.catalog.spec import Pipeline
from tally.control import ledger
from tally.parts import Function, Split
from tally.speed.shared.path import may_share


class Ahead:
    """A thread that looks at these pipelines' functions, in their order; whoever needs one waits for it, and has it."""

    def __init__(self, spark: SparkSession, pipelines: Iterable[Pipeline]) -> None:
        self.spark, self.pool = spark, ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self.found: dict[str, tuple[Function, Future[None]]] = {}
        for pipeline in pipelines:
            function = Function(spark, pipeline)
            self.found[pipeline.name] = function, self.pool.submit(look, function)

    def of(self, pipeline: Pipeline) -> Function:
        """A pipeline's function: looked at, if it was to be; it is given away once."""
        function, looked = self.found.pop(pipeline.name, (None, None))
        if function is None or looked is None or function.pipeline is not pipeline:
            return Function(self.spark, pipeline)
        if not looked.cancel():
            looked.result()
        return function

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


def look(function: Function) -> None:
    """Find out what a start asks; what goes wrong is found again, and told, by whoever asks."""
    pipeline = function.pipeline
    with suppress(Exception):
        assert function.definition.rows is not None
        if may_share(pipeline) and isinstance(function.in_two, Split):
            assert function.here is not None
        if ledger.newest(pipeline.name, pipeline.version) is None:
            function.definition.check()
