"""The source of a topic's stream, opened beside what else a start takes: Spark asks processes of Python's about it.

Where much waits to be read, the workers that will read it are there by then, too, with all that they import.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from tally.base.errors import TallyError
from tally.catalog.spec import Topic
from tally.sources import kafka, ranges_source
from tally.speed import checkpoint
from tally.speed.shared import one_pass
from tally.speed.shared.events import are_few
from tally.speed.shared.plan import first_offsets, most_offsets


def begin_to_open(spark: SparkSession) -> None:
    """Have Spark know the source, by the time that one is opened, and have its processes that only look at it."""

    def look() -> None:
        with suppress(Exception):  # whoever opens one finds the same, and tells it
            ranges_source.register(spark)
            spark.readStream.format(ranges_source.NAME).options(topic="", limit=1, begin="{}").load()

    threading.Thread(target=inheritable_thread_target(spark)(look), name="begin to open", daemon=True).start()


class Opening:
    """A source that is being opened; `reached` is how far its partitions were read."""

    def __init__(self, spark: SparkSession, topic: Topic, reached: Mapping[int, int]) -> None:
        self.spark, self.topic, self.reached = spark, topic, reached
        self.ranges: Future[DataFrame] = Future()
        threading.Thread(target=inheritable_thread_target(spark)(self.run), name="open", daemon=True).start()

    def run(self) -> None:
        try:
            self.ranges.set_result(self.opened())
        except BaseException as error:  # of whoever waits for it
            self.ranges.set_exception(error)

    def opened(self) -> DataFrame:
        ranges_source.register(self.spark)
        begin = first_offsets(checkpoint.topic_root(self.topic.name), self.topic)
        ranges = (
            self.spark.readStream.format(ranges_source.NAME)
            .option("topic", self.topic.name)
            .option("limit", most_offsets(self.topic))
            .option("begin", json.dumps(begin))
            .load()
        )
        reached = {int(partition): offset for partition, offset in begin.items()} | dict(self.reached)
        with suppress(TallyError):  # a Kafka that does not answer now is asked again, by the source
            waiting = sum(end - reached.get(p, 0) for p, end in kafka.end_offsets(self.topic.name).items())
            if not are_few(waiting):
                one_pass.wake(self.spark)
        return ranges
