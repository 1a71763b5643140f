"""Which offsets fed which micro-batch, under which watermark, and which Delta commit holds it.

Of micro-batches of long ago the control store has one row for all, and the lake's ledger table each: they are read from
there, by the same functions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from tally.control import kept_ledger, shares
from tally.control.micro_batch import HELD as HELD
from tally.control.micro_batch import NEAR as NEAR
from tally.control.micro_batch import MicroBatch as MicroBatch
from tally.control.micro_batch import Ranges as Ranges
from tally.control.micro_batch import from_commit as from_commit
from tally.control.micro_batch import from_row as from_row
from tally.control.shares import Share, stream_of
from tally.control.store import store, upsert
from tally.control.tables import ledger

# The first micro-batch that a row tells of.
BEGINS = sa.func.coalesce(ledger.c.first, ledger.c.batch)
NO_END = 1 << 62
COUNT = sa.func.coalesce(sa.func.sum(ledger.c.batch - BEGINS + 1), 0)


def record(batches: Iterable[MicroBatch]) -> None:
    """Write micro-batches; the same one twice is one row (pipeline, version, generation, batch)."""
    rows = [asdict(batch) for batch in batches]
    with store().begin() as connection:
        upsert(connection, ledger, rows)


def read(
    pipeline: str, version: str, generation: int | None = None, first: int = 0, last: int | None = None
) -> list[MicroBatch]:
    """Micro-batches of a pipeline's version, in the order in which they ran: all, or some of one generation."""
    found = []
    for run in runs_of(pipeline, version):
        query = run.query().where(ledger.c.batch >= first).order_by(ledger.c.generation, ledger.c.batch)
        if generation is not None:
            query = query.where(run.generation == generation)
        if last is not None:
            query = query.where(last >= BEGINS)
        found += run.found(query, first, last)
    return sorted(found, key=lambda batch: (batch.generation, batch.batch))


def at_or_after(pipeline: str, version: str, generation: int, batch: int) -> MicroBatch | None:
    """A micro-batch by its number; where there is none, the next one of its generation."""
    for run in runs_of(pipeline, version):
        wanted = max(batch, run.since)
        query = run.query().where(run.generation == generation, ledger.c.batch >= wanted)
        if found := run.found(query.order_by(ledger.c.batch).limit(1), wanted, wanted):
            return found[0]
    return None


def after(pipeline: str, version: str, generation: int, batch: int, limit: int | None = None) -> list[MicroBatch]:
    """The micro-batches under this very name that ran after one, in order."""
    later = sa.tuple_(ledger.c.generation, ledger.c.batch) > sa.tuple_(sa.literal(generation), sa.literal(batch))
    run = Run(name=pipeline, version=version)
    return run.found(run.query().where(later).order_by(ledger.c.generation, ledger.c.batch).limit(limit))


def newest(pipeline: str, version: str) -> MicroBatch | None:
    """The last micro-batch, or None where none ran."""
    last = (ledger.c.generation.desc(), ledger.c.batch.desc())
    found = [one for run in runs_of(pipeline, version) for one in run.found(run.query().order_by(*last).limit(1), -1)]
    return max(found, key=lambda batch: (batch.generation, batch.batch), default=None)


def spans(pipeline: str, version: str) -> list[tuple[MicroBatch, MicroBatch]]:
    """The first and the last entry of each generation; the first may stand for several."""
    found = []
    for run in runs_of(pipeline, version):
        bounds = sa.select(ledger.c.generation, sa.func.min(ledger.c.batch), sa.func.max(ledger.c.batch))
        with store().connect() as connection:
            edges = connection.execute(bounds.where(*run.rows()).group_by(ledger.c.generation)).all()
        for generation, *numbers in edges:
            query = run.query().where(ledger.c.generation == generation, ledger.c.batch.in_(numbers))
            both = run.rows_of(query.order_by(ledger.c.batch))
            first, last = both[0], both[-1]
            if first.first is not None and first.first < run.since:  # it tells of older ones, too
                first = at_or_after(pipeline, version, first.generation, run.since) or first
            found.append((first, last))
    return found


def last_where(newest: MicroBatch, holds: Callable[[MicroBatch], bool]) -> MicroBatch | None:
    """The last micro-batch of a generation of which something holds that holds of all before it, and of none after."""

    def entry(number: int) -> MicroBatch:
        found = at_or_after(newest.pipeline, newest.version, newest.generation, number)
        assert found is not None, "the newest one is there"
        return found

    numbers, edge = range(newest.batch + 1), min(folded_to(newest), newest.batch)
    if edge >= 0:  # what the control store has is searched without a look into the lake for each
        numbers = range(edge, newest.batch + 1) if holds(entry(edge)) else range(edge)
    place = bisect_left(numbers, True, key=lambda number: not holds(entry(number)))
    return entry(numbers[place - 1]) if place else None


def folded_to(newest: MicroBatch) -> int:
    """Up to which micro-batch of a generation the lake alone has them; -1: the control store has all."""
    for run in runs_of(newest.pipeline, newest.version):
        of_it = run.query().where(run.generation == newest.generation).order_by(ledger.c.batch)
        for oldest in run.rows_of(of_it.limit(1)):
            return -1 if oldest.first is None else oldest.batch
    return -1


def applied(pipeline: str, version: str) -> tuple[int, int]:
    """How many micro-batches there are, and the rows that they wrote."""
    query = sa.select(COUNT, sa.func.coalesce(sa.func.sum(ledger.c.rows), 0)).where(
        ledger.c.pipeline == pipeline, ledger.c.version == version
    )
    with store().connect() as connection:
        number, rows = connection.execute(query).one()
    parts = shares.every(pipeline, version)
    return int(number) + sum(one.batch + 1 - one.since for one in parts), int(rows) + sum(one.rows for one in parts)


def unbroken(pipeline: str, version: str) -> tuple[dict[int, int], bool]:
    """Up to which micro-batch each generation is there from 0 on (-1: 0 is not), and whether that is all of them.

    Counted by the database: a stream of a year has thirty million.
    """
    query = (
        sa.select(ledger.c.generation, COUNT, sa.func.max(ledger.c.batch))
        .where(ledger.c.pipeline == pipeline, ledger.c.version == version)
        .group_by(ledger.c.generation)
    )
    with store().connect() as connection:
        found = connection.execute(query).all()
    broken = {one for one, count, last in found if count != last + 1}
    return {
        one: first_gap(pipeline, version, one) if one in broken else int(last) for one, _, last in found
    }, not broken


def first_gap(pipeline: str, version: str, generation: int) -> int:
    """The last micro-batch before the first one that is missing."""
    query = sa.select(BEGINS, ledger.c.batch).where(
        ledger.c.pipeline == pipeline, ledger.c.version == version, ledger.c.generation == generation
    )
    reached = -1
    with store().connect() as connection:
        for begins, batch in connection.execution_options(yield_per=10_000).execute(query.order_by(ledger.c.batch)):
            if begins != reached + 1:
                break
            reached = int(batch)
    return reached


def generations() -> list[tuple[str, str, int]]:
    """Every name, version and generation that there are entries of."""
    query = sa.select(ledger.c.pipeline, ledger.c.version, ledger.c.generation).distinct()
    with store().connect() as connection:
        return [(name, version, generation) for name, version, generation in connection.execute(query)]


def old(name: str, version: str, generation: int, before: int) -> tuple[int, int] | None:
    """The first and the last of the entries that were committed before a time and have a row each; never the newest."""
    mine = [ledger.c.pipeline == name, ledger.c.version == version, ledger.c.generation == generation]
    newest = sa.select(sa.func.max(ledger.c.batch)).where(*mine).scalar_subquery()
    mine += [ledger.c.first.is_(None), ledger.c.committed_at < before, ledger.c.batch < newest]
    with store().connect() as connection:
        edges = sa.select(sa.func.min(ledger.c.batch), sa.func.max(ledger.c.batch)).where(*mine)
        first, last = connection.execute(edges).one()
    return None if first is None else (int(first), int(last))


def fold(name: str, version: str, generation: int, last: int) -> int:
    """Have one row for all entries of a generation up to one, each of which the lake has; the rows that this saves."""
    mine = [ledger.c.pipeline == name, ledger.c.version == version, ledger.c.generation == generation]
    up_to = [*mine, ledger.c.batch <= last]
    with store().begin() as connection:
        number, rows = connection.execute(sa.select(sa.func.count(), sa.func.sum(ledger.c.rows)).where(*up_to)).one()
        query = sa.select(ledger).where(*up_to).limit(1)
        ends = [connection.execute(query.order_by(edge)).one() for edge in (ledger.c.batch, ledger.c.batch.desc())]
        first, newest = (from_row(row._mapping) for row in ends)
        connection.execute(sa.delete(ledger).where(*up_to))
        connection.execute(sa.insert(ledger).values(**asdict(folded(first, newest, int(rows)))))
    return int(number) - 1


def folded(oldest: MicroBatch, last: MicroBatch, rows: int) -> MicroBatch:
    """One entry for all from the oldest to the last; a partition that came later began at its offset 0."""
    ranges = {
        topic: {p: (oldest.ranges.get(topic, {}).get(p, (0, 0))[0], end) for p, (_, end) in parts.items()}
        for topic, parts in last.ranges.items()
    }
    return replace(last, ranges=ranges, rows=rows, first=oldest.batch if oldest.first is None else oldest.first)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where the ledger has micro-batches of a pipeline: under its own name, or its topic's as far as it shares that."""

    name: str
    version: str
    share: Share | None = None

    @staticmethod
    def of(share: Share) -> Run:
        name, version = stream_of(share.topic)
        return Run(name=name, version=version, share=share)

    @property
    def generation(self) -> Any:
        """The pipeline's generation of a row."""
        return ledger.c.generation if self.share is None else sa.literal(self.share.generation)

    @property
    def since(self) -> int:
        return self.share.since if self.share is not None else 0

    def rows(self) -> list[Any]:
        """What all of its rows have in common."""
        mine = [ledger.c.pipeline == self.name, ledger.c.version == self.version]
        return mine if self.share is None else [*mine, self.share.batch >= BEGINS, ledger.c.batch >= self.since]

    def query(self) -> Any:
        return sa.select(ledger).where(*self.rows())

    def found(self, query: Any, first: int = 0, last: int | None = None) -> list[MicroBatch]:
        """Micro-batches between two numbers; `first` -1: of those that one row tells of, the last."""
        newest = min(NO_END if last is None else last, NO_END if self.share is None else self.share.batch)
        found = []
        for row in self.rows_of(query):
            if row.first is None:
                found.append(row)
                continue
            to = min(row.batch, newest)
            kept = kept_ledger.some(self, row.generation, max(row.first, first, self.since) if first >= 0 else to, to)
            found += [self.mine(one) for one in kept]
        return found

    def rows_of(self, query: Any) -> list[MicroBatch]:
        with store().connect() as connection:
            return [self.mine(from_row(row._mapping)) for row in connection.execute(query)]

    def mine(self, batch: MicroBatch) -> MicroBatch:
        """A micro-batch of the topic as the pipeline's own; of the newest, its commit is known."""
        share = self.share
        if share is None:
            return batch
        own = replace(batch, pipeline=share.pipeline, version=share.version, generation=share.generation)
        if batch.batch != share.batch:
            return own
        return replace(own, delta_version=share.delta_version, committed_at=share.committed_at)


def runs_of(pipeline: str, version: str) -> list[Run]:
    """All of them."""
    return [*map(Run.of, shares.every(pipeline, version)), Run(name=pipeline, version=version)]
