"""Which offsets fed which micro-batch, under which watermark, and which Delta commit holds it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tally.control.store import now_ms, store, upsert
from tally.control.tables import ledger

if TYPE_CHECKING:
    from tally.lake import delta

Ranges = dict[str, dict[int, tuple[int, int]]]
# How a micro-batch told copies of an id apart: it held an id until its watermark passed that (Spark's own way), or took
# for copies those that lie near one another in event time (a topic's shared stream).
HELD, NEAR = "held", "near"


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One applied micro-batch; ranges are half-open, watermarks are event time in milliseconds.

    Partitions stand in the order in which the micro-batch read them, where that matters: see speed/partition_order.py.
    """

    pipeline: str
    version: str
    generation: int
    batch: int
    ranges: Ranges
    late_watermark: int
    watermark: int
    rows: int
    delta_version: int
    committed_at: int
    ids: str = HELD

    def ends(self, topic: str) -> dict[int, int]:
        return {partition: to for partition, (_, to) in self.ranges.get(topic, {}).items()}


def record(batches: Iterable[MicroBatch]) -> None:
    """Write micro-batches; the same one twice is one row (pipeline, version, generation, batch)."""
    rows = [asdict(batch) for batch in batches]
    with store().begin() as connection:
        upsert(connection, ledger, rows)


def read(
    pipeline: str, version: str, generation: int | None = None, first: int = 0, last: int | None = None
) -> list[MicroBatch]:
    """Micro-batches of a pipeline's version, in the order in which they ran: all, or some of one generation."""
    query = mine(pipeline, version).order_by(ledger.c.generation, ledger.c.batch).where(ledger.c.batch >= first)
    if generation is not None:
        query = query.where(ledger.c.generation == generation)
    if last is not None:
        query = query.where(ledger.c.batch <= last)
    return found(query)


def at_or_after(pipeline: str, version: str, generation: int, batch: int) -> MicroBatch | None:
    """A micro-batch by its number; where there is none, the next one of its generation."""
    query = mine(pipeline, version).where(ledger.c.generation == generation, ledger.c.batch >= batch)
    return next(iter(found(query.order_by(ledger.c.batch).limit(1))), None)


def after(pipeline: str, version: str, generation: int, batch: int, limit: int | None = None) -> list[MicroBatch]:
    """The micro-batches that ran after one, in order."""
    later = sa.tuple_(ledger.c.generation, ledger.c.batch) > sa.tuple_(sa.literal(generation), sa.literal(batch))
    return found(mine(pipeline, version).where(later).order_by(ledger.c.generation, ledger.c.batch).limit(limit))


def newest(pipeline: str, version: str) -> MicroBatch | None:
    """The last micro-batch, or None where none ran."""
    query = mine(pipeline, version).order_by(ledger.c.generation.desc(), ledger.c.batch.desc()).limit(1)
    return next(iter(found(query)), None)


def last_where(newest: MicroBatch, holds: Callable[[MicroBatch], bool]) -> MicroBatch | None:
    """The last micro-batch of a generation of which something holds that holds of all before it, and of none after."""
    numbers = range(newest.batch + 1)

    def entry(number: int) -> MicroBatch:
        found = at_or_after(newest.pipeline, newest.version, newest.generation, number)
        assert found is not None, "the newest one is there"
        return found

    place = bisect_left(numbers, True, key=lambda number: not holds(entry(number)))
    return entry(numbers[place - 1]) if place else None


def applied(pipeline: str, version: str) -> tuple[int, int]:
    """How many micro-batches there are, and the rows that they wrote."""
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(ledger.c.rows), 0)).where(
        ledger.c.pipeline == pipeline, ledger.c.version == version
    )
    with store().connect() as connection:
        number, rows = connection.execute(query).one()
    return int(number), int(rows)


def unbroken(pipeline: str, version: str) -> tuple[dict[int, int], bool]:
    """Up to which micro-batch each generation is there from 0 on (-1: 0 is not), and whether that is all of them.

    Counted by the database: a stream of a year has thirty million.
    """
    query = (
        sa.select(ledger.c.generation, sa.func.count(), sa.func.max(ledger.c.batch))
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
    query = sa.select(ledger.c.batch).where(
        ledger.c.pipeline == pipeline, ledger.c.version == version, ledger.c.generation == generation
    )
    with store().connect() as connection:
        numbers = connection.execution_options(yield_per=10_000).execute(query.order_by(ledger.c.batch)).scalars()
        return next((at - 1 for at, number in enumerate(numbers) if number != at), -1)


def mine(pipeline: str, version: str) -> Any:
    return sa.select(ledger).where(ledger.c.pipeline == pipeline, ledger.c.version == version)


def found(query: Any) -> list[MicroBatch]:
    with store().connect() as connection:
        return [from_row(row._mapping) for row in connection.execute(query)]


def from_row(row: Any) -> MicroBatch:
    ranges = {t: {int(p): (int(a), int(b)) for p, (a, b) in parts.items()} for t, parts in row["ranges"].items()}
    return MicroBatch(**{**row, "ranges": ranges})


def from_commit(commit: delta.Commit) -> MicroBatch:
    """The entry that a micro-batch's own Delta commit tells."""
    words = commit.words
    return MicroBatch(
        pipeline=words["pipeline"],
        version=words["version"],
        generation=words["generation"],
        batch=words["batch"],
        ranges={t: {int(p): (r[0], r[1]) for p, r in parts.items()} for t, parts in words["ranges"].items()},
        late_watermark=words["late_watermark"],
        watermark=words["watermark"],
        rows=int(words.get("rows") or commit.metrics.get("numOutputRows") or 0),
        delta_version=commit.version,
        committed_at=commit.timestamp or now_ms(),
        ids=words.get("ids", HELD),
    )
