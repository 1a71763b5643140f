"""What stands in for the stream where its rows were trimmed, long after their seal, and the window is compared again.

The archive, read up to the ingests that the seal knew, must still give the digest that was sealed. Then the rows that
the replay says the stream put out stand in for the trimmed ones. Otherwise nothing does, and the window is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

from tally.batch.events import Until
from tally.batch.scope import scope
from tally.catalog.ranges import Range, merge, overlap
from tally.control import runs, seals
from tally.control.seals import Seal
from tally.reconcile import replay
from tally.reconcile.cut import Cut
from tally.reconcile.digest import digests
from tally.reconcile.seal import sealable
from tally.speed.fold import trimmed_days

EPOCH = date(1970, 1, 1)
DAY = 86_400_000


def stand_in(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> DataFrame | None:
    """The stream's rows of trimmed windows in the ranges whose seal is proven; None where no such window is."""
    gone = within(ranges, trimmed_days(cut.pipeline, cut.speed_version))
    held = merge((seal.slot_start, seal.slot_end) for seal in proven(spark, cut, gone)) if gone else []
    if not held:
        return None
    around = replay.events_around(spark, cut, held)
    frames = [
        replay.tagged_events(spark, cut, topic, wanted)
        for topic, wanted in zip(cut.pipeline.reads, around, strict=True)
    ]
    return replay.replayed(cut, frames, held)


def within(ranges: Sequence[Range], days: Sequence[date]) -> list[Range]:
    """What of the ranges lies on the days."""
    starts = [(day - EPOCH) // timedelta(milliseconds=1) for day in days]
    return overlap(ranges, [(start, start + DAY) for start in starts])


def proven(spark: SparkSession, cut: Cut, gone: Sequence[Range]) -> list[Seal]:
    """The seals of these windows whose digest the archive of their time still gives."""
    pipeline = cut.pipeline
    known = [
        seal
        for seal in seals.read(pipeline.name, pipeline.version, gone[0][0], gone[-1][1])
        if any(start <= seal.slot_start < end for start, end in gone)
    ]
    by_comparison: dict[int, list[Seal]] = defaultdict(list)
    for seal in known:
        by_comparison[seal.reconciliation].append(seal)
    found = []
    for number, group in sorted(by_comparison.items()):
        row = runs.reconciliation(number)
        if row is None or "archive" not in row["summary"]:
            continue
        good = {slot["start"] for slot in row["slots"] if slot["closed"] and sealable(slot, row["summary"])}
        then = {topic: Until(seq) for topic, seq in row["summary"]["archive"].items()}
        wanted = merge((seal.slot_start, seal.slot_end) for seal in group)
        now = digests(scope(spark, pipeline, wanted, then).rows, pipeline)
        hashes = {slot: digest.hash for slot, digest in now.items()}
        found += [s for s in group if s.slot_start in good and hashes.get(s.slot_start, "0") == s.digest]
    return found
