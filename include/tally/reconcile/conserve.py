"""Conservation: every archived record of a range is accounted for, and every offset of an ingest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tally.batch.events import archived, within
from tally.catalog.duration import millis
from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline, Topic
from tally.control import runs
from tally.reconcile import fate, replay
from tally.reconcile.cut import Cut
from tally.sources.archive import quarantine_path

PLACES = ("aggregated", "late", "duplicate", "quarantined", "filtered", "skipped", "in_flight", "applied_twice")


def conservation(spark: SparkSession, cut: Cut, frames: Sequence[DataFrame], ranges: Sequence[Range]) -> dict[str, Any]:
    """records = aggregated + late + duplicate + quarantined + filtered + skipped + in flight + applied twice.

    `records` are counted in archive and quarantine as they lie there, the valid ones' places among the events as the
    replay sees them. A refused record often has no event time: it belongs to the range in which the broker took it.
    """
    totals = dict.fromkeys(("records", *PLACES), 0)
    if not ranges:
        return {**totals, "balanced": True}
    ingested = ingests(cut)
    for frame, topic, wanted in zip(frames, cut.pipeline.reads, replay.event_ranges(cut, ranges), strict=True):
        inside = within(topic.event_time, wanted)
        totals["records"] += archived(spark, topic, cut.stated.versions[topic.name]).where(inside).count()
        refused = spark.read.format("delta").load(quarantine_path(topic)).where(within("_broker_time", wanted))
        totals["quarantined"] += refused.where(F.col("_ingest") <= ingested[topic.name]).count()
        for row in frame.where(inside).groupBy(place(topic, cut).alias("word")).count().collect():
            totals[row["word"]] += row["count"]
    totals["records"] += totals["quarantined"]
    return {**totals, "balanced": sum(totals[name] for name in PLACES) == totals["records"]}


def ingests(cut: Cut) -> dict[str, int]:
    """The number of each topic's last ingest that the compared batch table was stated from."""
    last = {}
    for topic, version in cut.stated.versions.items():
        numbers = [row["seq"] for row in runs.ingest_history(topic) if row["delta_version"] <= version]
        last[topic] = max(numbers, default=-1)
    return last


def place(topic: Topic, cut: Cut) -> Column:
    """Where a record is accounted for."""
    time, word = F.unix_micros(topic.event_time), F.col("_fate")
    word = F.when((word == fate.IN_FLIGHT) & (time <= cut.last.watermark * 1000), fate.LATE).otherwise(word)
    word = F.when((word == fate.ACCEPTED) & over(topic, cut), fate.LATE).otherwise(word)
    word = F.when(~F.col("_counted") & (word != fate.ACCEPTED), fate.DUPLICATE).otherwise(word)
    word = F.when(word.isin(fate.ACCEPTED, fate.LATE) & F.col("_filtered"), "filtered").otherwise(word)
    return F.when(word == fate.ACCEPTED, "aggregated").otherwise(word)


def over(topic: Topic, cut: Cut) -> Column:
    """Whether every window of an event was over before its micro-batch, where that is the rule."""
    window = cut.pipeline.window
    if cut.late_rule != "window":
        return F.lit(False)
    time, step = F.unix_micros(topic.event_time), F.lit(millis(window.slide) * 1000)
    last_start = time if window.kind == "session" else time - F.pmod(time, step)
    return last_start + millis(window.size) * 1000 <= F.col("_late_at") * 1000


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
