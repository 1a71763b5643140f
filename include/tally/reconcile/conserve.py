"""Conservation: every archived record of a range is accounted for, and every offset of an ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.batch.events import archived, within
from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline
from tally.control import runs
from tally.reconcile import fate, replay
from tally.reconcile.cut import Cut


def conservation(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> dict[str, Any]:
    """records = aggregated + late + duplicate + skipped + in flight (+ applied twice), counted from two sides."""
    totals = dict.fromkeys(("records", "aggregated", "late", "duplicate", "skipped", "in_flight", "applied_twice"), 0)
    if not ranges:
        return {**totals, "filtered": None, "balanced": True}
    for topic, wanted in zip(cut.pipeline.reads, replay.event_ranges(cut, ranges), strict=True):
        plain = archived(spark, topic, cut.stated.versions[topic.name]).where(within(topic.event_time, wanted))
        totals["records"] += plain.count()
        tagged = replay.tagged_events(spark, cut, topic, wanted)
        time = F.unix_millis(topic.event_time)
        left = (F.col("_fate") == fate.IN_FLIGHT) & (time <= cut.last.watermark)
        word = F.when(left, fate.LATE).otherwise(F.col("_fate"))
        word = F.when(~F.col("_counted") & (word != fate.ACCEPTED), fate.DUPLICATE).otherwise(word)
        for row in tagged.groupBy(word.alias("word")).count().collect():
            totals["aggregated" if row["word"] == fate.ACCEPTED else row["word"]] += row["count"]
    accounted = sum(n for name, n in totals.items() if name != "records")
    return {**totals, "filtered": None, "balanced": accounted == totals["records"]}


def ingest_balance(pipeline: Pipeline) -> dict[str, Any]:
    """Per topic, all offsets ever ingested: archived + quarantined + gaps, and whether that leaves none over."""
    found = {}
    for topic in pipeline.reads:
        history = runs.ingest_history(topic.name)
        quarantined: dict[str, int] = {}
        for row in history:
            for reason, number in row["quarantined"].items():
                quarantined[reason] = quarantined.get(reason, 0) + number
        records = sum(to - start for row in history for start, to in row["ranges"].values())
        archived_rows, gaps = (sum(row[name] for row in history) for name in ("archived", "gaps"))
        found[topic.name] = {
            "records": records,
            "archived": archived_rows,
            "quarantined": quarantined,
            "gaps": gaps,
            "balanced": gaps >= 0 and records == archived_rows + sum(quarantined.values()) + gaps,
        }
    return found
