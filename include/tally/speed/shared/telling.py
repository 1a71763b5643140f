"""Many events that bear ids, read in one pass: just those stay that would if they were looked at one after the other.

Workers make parts of those that are surely no copies, and send the ids of all, and the others as they are. Here it is
told which stay, of all together. Of two copies that lie in two tasks each was sure: where that is so, all is read once
more with the places that are left out, and in the next micro-batch these are found out first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tally.catalog.spec import Topic
from tally.speed.shared.events import at_places, identified_here, without_here
from tally.speed.shared.ids import Ids
from tally.speed.shared.one_pass import OnePass, Passed
from tally.speed.shared.sifting import CROWDED, DOUBTFUL, IDENTIFIED, LeftOut, Sifting

Read = Callable[[OnePass], Passed | None]


class Telling:
    """How the events of a topic are told apart; `reference` gives the valid events among records that are not sure."""

    def __init__(self, topic: Topic, reference: Callable[[Passed], pa.Table]) -> None:
        self.topic, self.reference = topic, reference
        self.first = False  # what stays is found out before parts are made of it, as the last pass would have been void

    def over(self, of: OnePass, ids: Ids, late_watermark: int, read: Read) -> Passed | None:
        """What pipelines make of the events that stay, and which do not; None where they are none for a pass."""
        tried = replace(of, takings={} if self.first else of.takings)
        given = passed = read(replace(tried, sifting=self.sifting(tried, ids, late_watermark)))
        if passed is None:
            return None
        unsure = self.reference(passed)
        left_out, brought = ids.told_apart(self.identified(passed, unsure), late_watermark)
        void = CROWDED in passed.told or any(
            (at_places(one, left_out) & one["_sure"].to_numpy()).any() for one in passed.told.get(IDENTIFIED, [])
        )
        if self.first or void:
            given = read(replace(of, sifting=LeftOut(left_out)))
            rest = [self.reference(given)] if given is not None else []
        else:
            rest = [unsure.select(of.columns), *passed.told.get(DOUBTFUL, [])]
        self.first = void
        if given is None:
            return None
        whole = of.with_events(given, without_here(pa.concat_tables(rest), left_out))
        newest = of.with_newest(passed, unsure).newest
        return Passed(newest=newest, parts=whole.parts, unsure=[], left_out=left_out, brought=brought)

    def sifting(self, of: OnePass, ids: Ids, late_watermark: int) -> Sifting:
        assert self.topic.unique
        return Sifting(
            unique=self.topic.unique,
            time=self.topic.event_time,
            late=late_watermark * 1000,
            remembered=ids.short_hashes(),
            columns=of.columns,
        )

    def identified(self, passed: Passed, unsure: pa.Table) -> pa.Table:
        """What tells all of the events apart."""
        assert self.topic.unique
        others = identified_here(unsure, self.topic.unique, self.topic.event_time)
        return pa.concat_tables([*(one.drop_columns("_sure") for one in passed.told.get(IDENTIFIED, [])), others])
