"""Compares the layers at one cut: all rows in one pass, then a replay where they differ, with causes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tally.base.duration import from_millis, instant, iso, millis
from tally.base.errors import AnswerIsNo, TallyError
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned, event_ranges, overlap, without
from tally.catalog.spec import Pipeline
from tally.control import runs, seals
from tally.lake import delta, memory
from tally.lake.session import session
from tally.reconcile import comparison, layers
from tally.reconcile.accounts import conservation, ingests
from tally.reconcile.audit import others
from tally.reconcile.comparison import Comparison, CutMark, SlotState
from tally.reconcile.conservation import ingest_balance
from tally.reconcile.cut import Cut, closed, due, find, reaching_back
from tally.reconcile.explain import Explanation, explain
from tally.reconcile.first_pass import layers as first_pass
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.layers import Layers
from tally.reconcile.meaning import Meaning, kept, of
from tally.reconcile.replay import expected_rows
from tally.reconcile.rows.differences import Slot
from tally.reconcile.rows.digest import NOTHING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
Start = Callable[[], "SparkSession"]


class SparkIsNeeded(Exception):
    """A comparison that was to start no JVM has come to where it takes one; nothing of it is kept."""


def no_spark() -> SparkSession:
    """In place of a session, where none may be started."""
    raise SparkIsNeeded


@memory.told(memory.BATCH)
def compare(
    name: str, start: str | None = None, end: str | None = None, ticket: str = "", *, spark: Start | None = None
) -> int:
    """Compare a range of windows, or all that are due, and keep what was found; the comparison's id."""
    pipeline = catalogue().pipeline(name)
    wanted = asked(pipeline, start, end)
    spark = spark or partial(session, f"tally-reconcile-{name}", brief=True)  # started by what needs it, once
    meaning = kept(pipeline) or of(spark(), pipeline)

    # 1. Choose the instant at which both layers are compared: a micro-batch whose every offset the archive holds.
    cut = find(pipeline, meaning.late_rule, meaning.filters)

    # 2. Hold what others changed in the batch table: it is due then, like all that is stated, closed and not sealed.
    others.audit_changed(spark, pipeline)
    ranges = ranges_of(cut, wanted)

    # 3. Take a number, under which the rows that differ are kept.
    begun = open_comparison(cut, ranges, ticket)
    try:
        found = compared(spark, begun, cut, meaning)
    except SparkIsNeeded:  # whoever asks Spark takes a number of its own
        failpoint("reconcile.before_withdraw")
        runs.withdraw(begun.number)
        raise
    comparison.keep(found)
    failpoint("reconcile.after_compare")
    return begun.number


def compared(spark: Start, begun: Comparison, cut: Cut, meaning: Meaning) -> Comparison:
    """What a comparison finds in its ranges; the rows that differ are in the audit table then."""
    ranges = begun.ranges

    # 4. Read as much of the ledger as the events of these windows need.
    cut = with_ledger(cut, ranges)

    # 5. Read both layers, slot by slot, and account for each record of these times.
    both = read(spark, cut, ranges, meaning)
    conserved, unaccounted = conservation(cut, both.accounts), both.unaccounted(cut)

    # 6. Replay the slots that differ, and put a cause to each row that does.
    explained = Explanation()
    if both.differing:
        both = replace(both, sides=both.sides or layers.read_sides(spark(), cut, ranges))
        explained = explain(spark(), cut, both, begun.number)

    # 7. Keep what was counted for the judge, with the state of each slot.
    found = replace(with_counts(begun, both, explained), meaning=meaning.as_json())
    states = slot_states(cut, ranges, both.slots, explained, unaccounted)
    ingest, archive = ingest_balance(cut.pipeline), ingests(cut)
    return replace(found, slots=states, conserved=conserved, ingest=ingest, archive=archive)


def read(spark: Start, cut: Cut, ranges: Sequence[Range], meaning: Meaning) -> Layers:
    """Both layers, without a JVM where that is proven to say the same; the log says where Spark read them, and why."""
    try:
        return first_pass.read(cut, ranges, meaning)
    except Unsure as why:
        log.warning("%s: compared by Spark, for %s", cut.pipeline.name, why)
    return layers.read(spark(), cut, ranges)


def asked(pipeline: Pipeline, start: str | None, end: str | None) -> Range | None:
    """The range that was asked for, on the grid; None: all that is due."""
    if (start is None) != (end is None):
        raise TallyError(
            "half a range", pipeline=pipeline.name, field="--from/--to", cure="give both, or neither for all due"
        )
    if start is None or end is None:
        return None
    return aligned((instant(start, "--from"), instant(end, "--to")), pipeline)


def open_comparison(cut: Cut, ranges: Sequence[Range], ticket: str) -> Comparison:
    """A comparison of which nothing is known but what it compares; its id counts on from the one in the audit table."""
    pipeline, last = cut.pipeline, cut.last
    written = delta.newest(settings().table("audit", pipeline.name), "audit")
    after = int(written.words["reconciliation"]) if written else 0  # a control store that was made anew knows of none
    span = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    return Comparison(
        number=runs.open_reconciliation(pipeline.name, pipeline.version, *span, ticket, after=after),
        pipeline=pipeline.name,
        version=pipeline.version,
        ranges=ranges,
        ticket=ticket,
        cut=CutMark(
            batch=last.batch, generation=last.generation, watermark=last.watermark, speed_version=cut.speed_version
        ),
        batch_version=cut.batch_version,
    )


def with_ledger(cut: Cut, ranges: Sequence[Range]) -> Cut:
    """The cut with every micro-batch that can have held an event of these windows, or a copy of one."""
    # With ids, once more: now it is known how far back the stream held them when it took those events.
    for _ in range(2 if any(topic.unique for topic in cut.pipeline.reads) else 1):
        cut = reaching_back(cut, expected_rows.first_offsets(cut, event_ranges(cut.pipeline, ranges)))
    return cut


def with_counts(begun: Comparison, both: Layers, explained: Explanation) -> Comparison:
    """What rows were counted: the very same, other by rounding, and different; with the events behind these."""
    return replace(
        begun,
        windows=both.equal + explained.windows,
        equal=both.equal + explained.rounding,
        different=explained.different,
        rounding=both.rounding + explained.rounding,
        unexplained=explained.unexplained,
        events=explained.events,
        rows=explained.rows,
    )


def slot_states(
    cut: Cut, ranges: Sequence[Range], rows: Mapping[int, Slot], explained: Explanation, unaccounted: Collection[int]
) -> list[SlotState]:
    """Each slot between the first and the last with rows, or that was sealed with rows that nothing took away.

    Where the slot before a range is judged, the range's first empty slots are too, so that seals leave no gap.
    """
    step, pipeline = millis(cut.pipeline.window.step), cut.pipeline
    filled = rows.keys() | set(unaccounted)
    if not filled:
        return []
    before, last = ranges[0][0] - step, max(filled) + step
    judged = {seal.slot_end for seal in seals.read(pipeline.name, pipeline.version, before, last)}
    states = []
    for start, end in ranges:
        first = start if start in judged else max(start, min(filled))
        for slot in range(first, min(end, last), step):
            state = slot_state(cut, slot, rows.get(slot), explained, slot in unaccounted)
            states.append(state)
    return states


def slot_state(cut: Cut, slot: int, rows: Slot | None, explained: Explanation, unaccounted: bool) -> SlotState:
    window = cut.pipeline.window
    end = slot + millis(window.step)
    last_end = rows.last_end if rows else end - 1 + millis(window.size)
    return SlotState(
        start=slot,
        end=end,
        rows=rows.rows if rows else 0,
        stream_rows=rows.stream_rows if rows else 0,
        digest=rows.digest if rows else NOTHING,
        closed=cut.closed(max(last_end, end)),
        unexplained=explained.unexplained_by_slot.get(slot, 0),
        explained=explained.events_by_slot.get(slot, 0),
        unaccounted=int(unaccounted),
    )


def ranges_of(cut: Cut, wanted: Range | None) -> list[Range]:
    """The window starts to compare; a range that the batch never stated is refused."""
    if wanted is None:
        return due(cut)
    a, b = (iso(from_millis(ms)) for ms in wanted)
    missing = without([wanted], cut.stated.current)
    if missing == [wanted]:
        again = " since later events of it were archived" if overlap([wanted], cut.stated.stale) else ""
        raise AnswerIsNo(
            f"the batch has not stated [{a}, {b}){again}",
            pipeline=cut.pipeline.name,
            cure=f"tally batch {cut.pipeline.name} --from {a} --to {b}",
        )
    stated = without([wanted], missing)
    found = stated if cut.travels else closed(cut, stated)
    if not found:
        raise AnswerIsNo(
            "these windows were open when the batch last read Kafka, which is too long ago to compare them so",
            pipeline=cut.pipeline.name,
            cure=f"tally batch {cut.pipeline.name} --from {a} --to {b}",
        )
    return found
