"""What stands in for the stream where its rows are gone, long after their seal, and the window is compared again.

The archive, read up to the ingests that the seal knew, must still give the digest that was sealed. Then the rows that
the replay says the stream put out stand in for the trimmed ones. Otherwise nothing does, and the window is held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from datetime import date, timedelta

from pyspark.sql import DataFrame, SparkSession

from tally.base.duration import millis
from tally.catalog.ranges import Range, merge, overlap
from tally.catalog.spec import Pipeline
from tally.control import runs, seals
from tally.control.seals import Seal
from tally.kinds import kind_of
from tally.reconcile import revisions
from tally.reconcile.comparison import Comparison
from tally.reconcile.cut import Cut
from tally.reconcile.replay import expected_rows
from tally.reconcile.rows.digest import NOTHING, alike
from tally.reconcile.rows.hashes import digests
from tally.sources.archived import Until
from tally.speed.upkeep.fold import trimmed_days

EPOCH = date(1970, 1, 1)
DAY = 86_400_000
HISTORY = 1000  # comparisons to go back through for one that vouches for a slot


def stand_in(spark: SparkSession, cut: Cut, ranges: Sequence[Range]) -> DataFrame | None:
    """The stream's rows of trimmed windows in the ranges whose seal is proven; None where no such window is."""
    gone = within(ranges, trimmed_days(cut.pipeline, cut.speed_version))
    held = {seal.slot_start: seal.slot_end for seal in proven(spark, cut, gone)} if gone else {}
    if not held:
        return None
    around = kind_of(cut.pipeline).replay_reads(spark, held, cut.stated.versions)
    frames = [
        expected_rows.tagged_events(spark, cut, topic, wanted)
        for topic, wanted in zip(cut.pipeline.reads, around, strict=True)
    ]
    return expected_rows.replayed(cut, frames, merge(held.items()))


def unproven(spark: SparkSession, cut: Cut, slots: Sequence[int], skipped: Set[int]) -> set[int]:
    """Of slots that differ, those sealed before, that hold events which the stream never read, and whose seal the
    archive of its time no longer gives: since a rebuild nobody else could tell that the archive lost something.

    `skipped` are the slots with such events.
    """
    pipeline = cut.pipeline
    wanted = kind_of(pipeline).concerned(skipped, set(slots))
    known = {seal.slot_start for seal in seals.read(pipeline.name, pipeline.version) if seal.revision}
    sealed = sorted(known & wanted)
    if not sealed:
        return set()
    step = millis(pipeline.window.step)
    good = {seal.slot_start for seal in proven(spark, cut, merge((slot, slot + step) for slot in sealed))}
    return set(sealed) - good


def within(ranges: Sequence[Range], days: Sequence[date]) -> list[Range]:
    """What of the ranges lies on the days."""
    starts = [(day - EPOCH) // timedelta(milliseconds=1) for day in days]
    return overlap(ranges, [(start, start + DAY) for start in starts])


def proven(spark: SparkSession, cut: Cut, gone: Sequence[Range]) -> list[Seal]:
    """The seals of these windows whose digest the archive of their time still gives."""
    pipeline = cut.pipeline
    known = {seal.slot_start: seal for seal in revisions.judged(pipeline, gone)}
    found = []
    for archive, told in vouchers(pipeline, known.values()):
        then = {topic: Until(seq) for topic, seq in archive.items()}
        wanted = merge((known[slot].slot_start, known[slot].slot_end) for slot in told)
        now = digests(kind_of(pipeline).scope(spark, wanted, then).rows, pipeline)
        texts = {slot: digest.text for slot, digest in now.items()}
        found += [known[slot] for slot, digest in told.items() if alike(texts.get(slot, NOTHING), digest)]
    return found


def vouchers(pipeline: Pipeline, known: Collection[Seal]) -> Iterator[tuple[Mapping[str, int], dict[int, str]]]:
    """The last comparisons that found nothing against these slots: what each read of the archive, digests by slot.

    A slot that is held now was judged since: then an earlier comparison tells, as long as it is kept.
    """
    left, own = {seal.slot_start for seal in known}, sorted({seal.reconciliation for seal in known}, reverse=True)

    def comparisons() -> Iterator[Comparison]:
        yield from map(Comparison.from_json, filter(None, map(runs.reconciliation, own)))
        if left:
            yield from map(Comparison.from_json, runs.reconciliation_history(pipeline.name, limit=HISTORY))

    for one in comparisons():
        if one.version != pipeline.version or one.archive is None:
            continue
        good = [slot for slot in one.slots if slot.start in left and slot.closed and one.clears(slot)]
        if good:
            left -= {slot.start for slot in good}
            yield one.archive, {slot.start: slot.digest for slot in good}
