"""What a micro-batch's progress says: how fresh it made the windows, how far behind it is, and if it gains on that."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tally.catalog.spec import Pipeline
from tally.sources.frames import observation

# Weight of the newest observation: a few micro-batches decide, a single slow one does not.
NEWEST_WEIGHT = 0.4


def freshness(pipeline: Pipeline, progress: Any) -> dict[str, Any]:
    """Seconds from a micro-batch's newest record reaching the broker to its commit, its newest window, and its pace."""
    ended = ended_at(progress)
    found = progress["observedMetrics"]
    topics = [found[observation(topic)] for topic in pipeline.reads if observation(topic) in found]
    records = [row["newest_record"] for row in topics if row["newest_record"] is not None]
    told: dict[str, Any] = {"rows_per_second": float(progress.get("processedRowsPerSecond") or 0.0)}
    if records:
        told["freshness"] = max(0.0, (ended - max(records)) / 1000)
    if topics and topics[0]["newest_event"] is not None:
        told["newest_window"] = pipeline.slot(topics[0]["newest_event"])
    return told


def ended_at(progress: Any) -> float:
    """When a micro-batch ended, in milliseconds since the epoch."""
    began = datetime.fromisoformat(str(progress["timestamp"]).replace("Z", "+00:00")).timestamp() * 1000
    return began + float(progress["durationMs"].get("triggerExecution", 0))


def behind(progress: Any) -> int | None:
    """Records that Kafka held past the end of a micro-batch when it began; None where Spark does not say."""
    total = 0
    for source in progress["sources"]:
        try:
            latest, end = json.loads(source["latestOffset"]), json.loads(source["endOffset"])
        except (KeyError, TypeError, ValueError):
            return None
        if not latest:  # a micro-batch that was planned before the query began asks Kafka nothing
            return None
        for topic, parts in latest.items():
            reached = (end or {}).get(topic, {})
            total += sum(max(0, offset - reached.get(partition, 0)) for partition, offset in parts.items())
    return total


class Gain:
    """By how many records a second a stream's lag shrinks, over its last few micro-batches; negative: it grows."""

    def __init__(self) -> None:
        self.last: tuple[float, int] | None = None
        self.rate = 0.0

    def seen(self, at_ms: float, waiting: int) -> float:
        """Take in what one micro-batch left waiting; the rate now."""
        if self.last is not None and at_ms > self.last[0]:
            rate = (self.last[1] - waiting) / ((at_ms - self.last[0]) / 1000)
            self.rate = NEWEST_WEIGHT * rate + (1 - NEWEST_WEIGHT) * self.rate if self.rate else rate
        self.last = (at_ms, waiting)
        return self.rate
