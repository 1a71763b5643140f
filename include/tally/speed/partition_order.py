"""In which order a running micro-batch reads the partitions of its topics: of two copies of an id, the first one stays.

Only the scan itself knows: Spark takes the order from its maps of offsets, and it is no order of numbers.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

from tally.catalog.spec import Pipeline
from tally.control.ledger import Ranges

RANGE = re.compile(r"KafkaOffsetRange\(([^,]+)-(\d+),")


def in_order(spark: SparkSession, pipeline: Pipeline, ranges: Ranges) -> Ranges:
    """The ranges with each topic's partitions as the micro-batch that runs now reads them."""
    if not any(topic.unique for topic in pipeline.reads):
        return ranges
    places = {place: at for at, place in enumerate(scanned(spark, pipeline.name))}
    return {
        topic: dict(sorted(parts.items(), key=lambda part: places.get((topic, part[0]), len(places))))
        for topic, parts in ranges.items()
    }


def scanned(spark: SparkSession, name: str) -> list[tuple[str, int]]:
    """(topic, partition) of each task of the running micro-batch's scans, in order."""
    (query,) = [query for query in spark.streams.active if query.name == name]
    running: Any = query._jsq
    leaves = running.streamingQuery().lastExecution().executedPlan().collectLeaves()
    found: list[tuple[str, int]] = []
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        if leaf.getClass().getSimpleName() == "MicroBatchScanExec":
            text = str(leaf.inputPartitions().toString())
            found += [(topic, int(partition)) for topic, partition in RANGE.findall(text)]
    return found
