"""What a pipeline that shares its topic's stream has missed of it: each micro-batch is taken as it was judged.

What the inbox has of them stands; the rest is read again.
"""

from __future__ import annotations

import pyarrow as pa

from tally.base.duration import millis, parse_duration
from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.control import leases, ledger
from tally.control.ledger import NEAR, MicroBatch
from tally.control.shares import GENERATION, stream_of
from tally.sources import kafka
from tally.speed import checkpoint
from tally.speed.shared.events import Reading, identified, remembered
from tally.speed.shared.ids import Ids
from tally.speed.shared.inbox import Inbox
from tally.speed.shared.journal import Journal
from tally.speed.shared.member import Member


class Missed:
    """The micro-batches of a topic so far, for pipelines whose tables lack some."""

    def __init__(self, reading: Reading, inbox: Inbox, journal: Journal) -> None:
        self.reading, self.topic, self.inbox, self.journal = reading, reading.topic, inbox, journal

    def first(self, member: Member) -> int:
        """The first micro-batch that a pipeline's table lacks."""
        known = ledger.newest(*member.place)
        return known.batch + 1 if known is not None else 0

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
        watermarks = [one.late_watermark for one in lacking] + [newest.clock.watermark]
        rows = self.inbox.rows(*member.place)
        member.restore([row.totals for row in rows if row.batch < first], watermarks[0])
        there, ids = {row.batch: row.totals for row in rows}, None
        for one, watermark in zip(lacking, watermarks[1:], strict=True):
            if member.left:
                return
            if one.batch not in there:
                ids = ids or self.ids_before(one, member)
            with self.journal.running(member.place, one.batch):
                self.take(member, one, there.get(one.batch), ids, watermark)
            self.journal.outlived(member.place, one.batch)

    def take(self, member: Member, one: MicroBatch, totals: pa.Table | None, ids: Ids | None, watermark: int) -> None:
        """Take a micro-batch for a pipeline, by what the inbox has of it, else by what it reads again."""
        if totals is None:
            totals = self.totals_again(member, one, ids)
            leases.check(member.target.lease)
            self.inbox.take_late(one.batch, member.place, totals)
        member.take(self.reading.session(totals.num_rows), totals, planned_again(one), watermark)

    def totals_again(self, member: Member, one: MicroBatch, ids: Ids | None) -> pa.Table:
        """What an earlier micro-batch comes to for a pipeline, by the watermark and the ids that judged it."""
        ranges = one.ranges[self.topic.name]
        with self.reading.valid(ranges) as valid:
            found = self.reading.judged(valid, ranges, ids, one.late_watermark)
            if ids is not None:
                ids.put(found.brought)
            return member.totals(self.reading.session(found.offsets), found, one.late_watermark)

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
        ids.put(remembered(found, self.told(starts.batch if starts else 0, one.batch - 1, member), name))
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


def planned_again(one: MicroBatch) -> checkpoint.Planned:
    return checkpoint.Planned(
        batch=one.batch, ranges=one.ranges, late_watermark=one.late_watermark, watermark=one.watermark, ids=NEAR
    )
