"""What can become of an archived event in the stream: one fate each.

Skipped: no micro-batch held its offset. In flight: the stream had not yet read it at the cut. Applied twice: two
micro-batches held it.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

ACCEPTED, LATE, DUPLICATE, SKIPPED, IN_FLIGHT, TWICE = (
    "accepted",
    "late",
    "duplicate",
    "skipped",
    "in_flight",
    "applied_twice",
)


def accepted(events: DataFrame) -> DataFrame:
    """The events that reached the stream's state, once for each micro-batch that held them."""
    kept = events.where(F.col("_fate").isin(ACCEPTED, TWICE))
    again = {"_batch_index": F.col("_again_index"), "_late_at": F.col("_again_late_at")}
    return kept.unionByName(events.where(F.col("_fate") == TWICE).withColumns(again))
