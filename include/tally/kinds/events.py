"""Single events: rows out for rows in, of each at most one, sealed in slots of the event's time."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from tally.kinds.kind import LateRule
from tally.kinds.windowed import Windowed


@dataclass(frozen=True, kw_only=True)
class Events(Windowed):
    """One topic, event by event: the slot is the window, the topic's unique id is in the key, and nothing is added up.

    The topic drops copies and what comes after the watermark before the function has a say, as it does for all kinds.
    """

    @property
    def row_by_row(self) -> bool:
        return True

    @property
    def alone(self) -> str | None:
        return "it gives a row for each event: there is nothing to add up"

    def late_rule(self, spark: SparkSession) -> LateRule:
        return "event"
