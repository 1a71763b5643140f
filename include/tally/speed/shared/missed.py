"""What a pipeline that shares its topic's stream has missed of it: each event is taken as it was judged.

What the inbox has of it stands; the rest is read again, many micro-batches at a time.
"""

from __future__ import annotations

import logging

import pyarrow as pa
from pyspark.sql import functions as F

from tally.base.duration import millis, parse_duration
from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.control import leases, ledger
from tally.control.ledger import MicroBatch
from tally.control.shares import GENERATION, stream_of
from tally.kinds import kind_of
from tally.kinds.kind import History, LateRule
from tally.sources import kafka
from tally.speed.shared.events import identified, remembered, without
from tally.speed.shared.ids import LEFT_OUT, Ids
from tally.speed.shared.inbox import Inbox
from tally.speed.shared.journal import Journal
from tally.speed.shared.member import Member
from tally.speed.shared.plan import most_offsets
from tally.speed.shared.reading import Reading
from tally.speed.shared.spans import Span, spans

log = logging.getLogger(__name__)


class Missed:
    """The micro-batches of a topic so far, for pipelines whose tables lack some."""

    def __init__(self, reading: Reading, inbox: Inbox, journal: Journal) -> None:
        self.reading, self.topic, self.inbox, self.journal = reading, reading.topic, inbox, journal

    def first(self, member: Member) -> int:
        """The first micro-batch that a pipeline's table lacks."""
        known = ledger.newest(member.pipeline.name, member.pipeline.version)
        if known is not None and known.generation == member.target.generation:
            return known.batch + 1
        if member.since is None:
            member.since = self.retained_since(member)
        return member.since

    def retained_since(self, member: Member) -> int:
        """The first micro-batch of which Kafka holds all records, and all those that came after it."""
        newest = self.inbox.newest()
        if newest is None:
            return 0
        begin, name = kafka.begin_offsets(self.topic.name), self.topic.name
        (reached,) = self.told(newest.batch, newest.batch, member)
        gone = ledger.last_where(
            reached, lambda one: any(start < begin.get(p, 0) for p, (start, _) in one.ranges[name].items())
        )
        if gone is None:
            return 0
        since = gone.batch + 1
        log.info("%s begins at micro-batch %s of %s: Kafka has no older ones", member.pipeline.name, since, name)
        return since

    def count(self, member: Member) -> int:
        """How many micro-batches it lacks."""
        newest = self.inbox.newest()
        return 0 if newest is None else newest.batch + 1 - self.first(member)

    def catch_up(self, member: Member) -> None:
        """Take for one pipeline what its table lacks."""
        newest = self.inbox.newest()
        if newest is None:
            return
        first = self.first(member)
        lacking = self.told(first, newest.batch, member)
        if lacking:
            starts = {p: start for p, (start, _) in lacking[0].ranges[self.topic.name].items()}
            kafka.check_retained(self.topic.name, starts, {}, member.pipeline.name)
        rows = self.inbox.rows(*member.place)
        begins = lacking[0].late_watermark if lacking else newest.clock.watermark
        member.restore([row.totals for row in rows if row.batch < first], begins)
        there, ids = {row.batch: row.totals for row in rows}, None
        for span in spans(self.topic.name, lacking, most_offsets(self.topic), ends=list(there)):
            if member.left:
                return
            totals = there.get(span.last.batch)  # of all that no row before it is of
            if totals is not None:
                ids = None
            elif ids is None:  # that there are none yet is known, too
                ids = self.ids_before(span.first, member)
            with self.journal.running(member.place, span.last.batch):
                self.take(member, span, totals, ids)
            self.journal.outlived(member.place, span.last.batch)

    def take(self, member: Member, span: Span, totals: pa.Table | None, ids: Ids | None) -> None:
        """Take micro-batches for a pipeline, by what the inbox has of them, else by what it reads again."""
        if totals is None:
            totals = self.totals_again(member, span, ids)
            leases.check(member.target.lease)
            self.inbox.take_late(span.last.batch, member.place, totals)
        member.take(self.reading.session(totals.num_rows), totals, span.planned, span.last.watermark)

    def totals_again(self, member: Member, span: Span, ids: Ids | None) -> pa.Table:
        """What micro-batches in a row come to for a pipeline, by the watermarks and the ids that judged them."""
        rule: LateRule = "window" if ids is None else "event"
        with self.reading.valid(span.ranges) as valid:
            if ids is None:
                events = valid.withColumn("_late_at", span.late_at(F.col("_partition"), F.col("_offset")))
            else:
                events = without(valid, left_out(identified(valid, self.topic), span, ids))
            (given,) = kind_of(member.pipeline).replayed([events], History(batches=span.batches, late_rule=rule))
            return member.totals_of(given)

    def ids_before(self, one: MicroBatch, member: Member) -> Ids | None:
        """The ids of which an earlier micro-batch may hold copies, read again from where the first of them can lie."""
        if not self.topic.unique:
            return None
        lateness, skew = millis(self.topic.lateness), millis(parse_duration(settings().skew, field="TALLY_SKEW"))
        ids, name = Ids(lateness), self.topic.name
        # No event is further ahead of its broker time than the skew.
        since = kafka.offsets_since(name, max(0, one.late_watermark - lateness - skew))
        reach = {p: (since[p], to) for p, (to, _) in one.ranges[name].items() if 0 <= since.get(p, -1) < to}
        if not reach:
            return ids
        (before,) = self.told(one.batch - 1, one.batch - 1, member)
        starts = ledger.last_where(
            before, lambda b: all(b.ranges[name].get(p, (0, 0))[0] <= reach[p][0] for p in reach)
        )
        with self.reading.valid(reach) as valid:
            found = identified(valid, self.topic)
        held = Span(name, self.told(starts.batch if starts else 0, one.batch - 1, member))
        ids.put(remembered(found, held))
        return ids

    def told(self, first: int, last: int, member: Member) -> list[MicroBatch]:
        """Micro-batches of the topic by the ledger, which must know all of them."""
        found = ledger.read(*stream_of(self.topic.name), GENERATION, first, last)
        if len(found) != last + 1 - first:
            raise AnswerIsNo(
                f"it lacks micro-batches {first} to {last} of topic {self.topic.name}, "
                "and the ledger does not know all of them",
                pipeline=member.pipeline.name,
                field="ledger",
                cure=f"put back the control store, else: tally rebuild {member.pipeline.name}",
            )
        return found


def left_out(events: pa.Table, span: Span, ids: Ids) -> pa.Table:
    """The places of late ones and of copies among identified events; `ids` are then those after all of them."""
    out = [LEFT_OUT.empty_table()]
    for batch, held in span.one_by_one(events):
        here, brought = ids.told_apart(held, batch.late_watermark)
        out.append(here)
        ids.put(brought)
        ids.forget(batch.watermark)
    return pa.concat_tables(out)
