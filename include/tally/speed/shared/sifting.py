"""Which events of a topic with ids a worker makes parts of at once: those that are no copies, for all that it knows.

A worker sees its own records, and hashes of what is remembered. What of the rest is a copy, the driver tells, of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tally.speed.shared.events import identified_here, without_here
from tally.speed.shared.hashes import Hashes, Mask, among, hashes, short, together

# What is sent of them, beside the parts.
IDENTIFIED, DOUBTFUL, CROWDED = "identified", "doubtful", "crowded"
# A task's doubtful events are sent as rows, some hundred bytes each; of more it is as cheap to read all once more.
MOST_DOUBTFUL = 50_000
Told = Iterator[tuple[str, pa.Table | None]]


@dataclass(frozen=True, kw_only=True)
class Sifting:
    """How a micro-batch's events are told from those that may be copies; plain data, which is sent to the workers."""

    unique: str
    time: str
    late: int  # the newest event time that is late, microseconds
    remembered: Hashes  # short ones of ids, in order
    columns: Sequence[str]  # of the events, those that somebody looks at, and their places

    def begun(self) -> Sieve:
        return Sieve(self)


class Sieve:
    """One task's events so far, in the order in which they are read."""

    def __init__(self, of: Sifting) -> None:
        self.of, self.crowded = of, False
        self.identified, self.doubtful = list[pa.Table](), list[pa.Table]()
        self.before: Hashes = np.empty(0, np.uint32)

    def sure(self, events: pa.Table) -> pa.Table:
        """Those of some more events that are not late, and no copies of what was remembered or read before."""
        found = identified_here(events, self.of.unique, self.of.time)
        late = found["_time"].to_numpy() <= self.of.late
        doubtful = self.may_be_copies(short(hashes(found["_id"]))) & ~late
        sure, used = pa.array(~late & ~doubtful), events.select([*self.of.columns])
        self.identified.append(found.append_column("_sure", sure))
        if doubtful.any():
            self.doubtful.append(used.filter(pa.array(doubtful)))
            self.crowded = self.crowded or sum(one.num_rows for one in self.doubtful) > MOST_DOUBTFUL
        if self.crowded:  # all is read once more
            self.doubtful.clear()
            return used.slice(0, 0)
        return used.filter(sure) if sure.false_count else used

    def may_be_copies(self, found: Hashes) -> Mask:
        """Which may be copies of one that is remembered, or was read before; of several the first is none."""
        order = np.argsort(found, kind="stable")
        ordered = found[order]
        again = among(self.of.remembered, ordered) | among(self.before, ordered)
        again[1:] |= ordered[1:] == ordered[:-1]
        self.before = together([self.before, ordered])
        out = np.empty_like(again)
        out[order] = again
        return out

    def told(self) -> Told:
        yield from ((IDENTIFIED, one) for one in self.identified)
        yield from ((DOUBTFUL, one) for one in self.doubtful)
        if self.crowded:
            yield CROWDED, None


@dataclass(frozen=True)
class LeftOut:
    """The places of events that are left out, once these are known; plain data, which is sent to the workers."""

    places: pa.Table

    def begun(self) -> LeftOut:
        return self

    def sure(self, events: pa.Table) -> pa.Table:
        return without_here(events, self.places)

    def told(self) -> Told:
        yield from ()
