"""Many records of a topic in one pass: Spark's workers read them, and make what all pipelines keep of them at once.

Parts alone come back, and records that are not plain, as they are: these are the reference decode's to read. Of events
with ids these come back, too, and those that may be copies. Of a pipeline that cannot take what a worker read nothing
comes back, and Spark's own plan takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tally.parts import Taking
from tally.sources.records.plain import AT_ONCE
from tally.sources.records.valid import Valid
from tally.speed.shared.clock import Seen
from tally.speed.shared.events import PLACE, Owner, as_seen, newest_of, newest_times
from tally.speed.shared.ids import LEFT_OUT
from tally.speed.shared.inbox import packed, unpacked
from tally.speed.shared.sifting import LeftOut, Sifting

OUT = "what STRING, data BINARY"
NEWEST, UNSURE, REFUSED = "newest", "unsure", "refused"
# A task's records that are not sure: of so many the topic is none of plain records.
MOST_UNSURE = 20_000
# Parts are added up in a worker once so many rows of them came, and as many as were added up before.
MOST_PARTS = 200_000


@dataclass(frozen=True, kw_only=True)
class Passed:
    """What came of a pass: the newest of each partition, each pipeline's parts in pieces, records that are not sure.

    Of events with ids also what was told of them, the places of those that are left out, and ids to be remembered.
    """

    newest: Sequence[pa.Table]
    parts: Mapping[Owner, Sequence[pa.Table]]
    unsure: Sequence[pa.Table]
    told: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    left_out: pa.Table = field(default_factory=LEFT_OUT.empty_table)
    brought: pa.Table | None = None

    @property
    def seen(self) -> dict[int, Seen]:
        return as_seen(newest_of(pa.concat_tables(self.newest))) if self.newest else {}


@dataclass(frozen=True, kw_only=True)
class OnePass:
    """How a topic's records are read, and who takes them; plain data, which is sent to the workers."""

    time: str  # of the events
    valid: Valid
    takings: Mapping[Owner, Taking]
    sifting: Sifting | LeftOut | None = None  # None: all events are taken

    @property
    def columns(self) -> list[str]:
        """Of the events, those that somebody looks at, and their places."""
        return list(dict.fromkeys([*PLACE, *(name for one in self.takings.values() for name in one.columns)]))

    def over(self, records: DataFrame) -> Passed | None:
        """The pass over these records; None where they are none for it."""
        if self.sifting is None:
            return self.gathered(records.mapInArrow(self.task, OUT).toArrow())
        # As a part of the function a large one would be a file that Spark keeps for as long as it lives.
        bare, shared = replace(self, sifting=None), records.sparkSession.sparkContext.broadcast(self.sifting)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return replace(bare, sifting=shared.value).task(batches)

        try:
            return self.gathered(records.mapInArrow(task, OUT).toArrow())
        finally:
            shared.destroy()

    def gathered(self, rows: pa.Table) -> Passed | None:
        """What all tasks told."""
        found: dict[str, list[Any]] = {}
        for what, data in zip(rows["what"].to_pylist(), rows["data"], strict=True):
            found.setdefault(what, []).append(unpacked(data.as_buffer()) if data.is_valid else None)
        if REFUSED in found:
            return None
        parts = {owner: found.get(str(at), []) for at, owner in enumerate(self.takings)}
        left_out = {owner for at, owner in enumerate(self.takings) if None in found.get(str(at), [])}
        return Passed(
            newest=found.get(NEWEST, []),
            parts={owner: pieces for owner, pieces in parts.items() if owner not in left_out},
            unsure=found.get(UNSURE, []),
            told=found,
        )

    def with_events(self, passed: Passed, events: pa.Table) -> Passed:
        """The same with some more events, that were read elsewhere; who cannot take them is left to Spark."""
        if not events.num_rows:
            return passed
        parts = dict(passed.parts)
        for owner in passed.parts:
            if (more := self.takings[owner].over(events)) is None:
                del parts[owner]
            else:
                parts[owner] = [*parts[owner], more]
        return replace(passed, parts=parts)

    def with_newest(self, passed: Passed, events: pa.Table) -> Passed:
        """The same once these were seen, too."""
        return replace(passed, newest=[*passed.newest, newest_times(events, self.time)])

    def task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition's records, some megabytes at a time."""
        held = Held(self)
        chunk, size = list[pa.RecordBatch](), 0
        for batch in batches:
            chunk, size = [*chunk, batch], size + batch.nbytes
            if size >= AT_ONCE:
                held.take(pa.Table.from_batches(chunk))
                chunk, size = [], 0
        if chunk:
            held.take(pa.Table.from_batches(chunk))
        yield from held.told()


def wake(spark: SparkSession) -> None:
    """Have workers that have imported what a pass needs."""
    cores = spark.sparkContext.defaultParallelism
    spark.range(0, cores, 1, cores).mapInArrow(nothing, "id BIGINT").collect()


def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class Held:
    """What a task has made so far."""

    def __init__(self, of: OnePass) -> None:
        self.of, self.refused = of, False
        self.sieve = of.sifting.begun() if of.sifting is not None else None
        self.newest, self.unsure = list[pa.Table](), list[pa.Table]()
        self.parts: dict[str, list[pa.Table] | None] = {str(at): [] for at, _ in enumerate(of.takings)}

    def take(self, records: pa.Table) -> None:
        """Read some records, and have each pipeline's parts of the events among them."""
        self.refused = self.refused or pc.any(records["_long"]).as_py()
        if self.refused:
            return
        events, unsure = self.of.valid.told_apart(records.drop_columns("_long"))
        if unsure.num_rows:
            self.unsure.append(unsure)
            self.refused = sum(one.num_rows for one in self.unsure) > MOST_UNSURE
        self.newest.append(newest_times(events, self.of.time))
        if self.sieve is not None:
            events = self.sieve.sure(events)
        for name, taking in zip(self.parts, self.of.takings.values(), strict=True):
            self.parts[name] = added(taking, self.parts[name], taking.over(events))

    def told(self) -> Iterator[pa.RecordBatch]:
        if self.refused:
            yield row(REFUSED, None)
            return
        for one in self.unsure:
            yield row(UNSURE, one)
        if self.newest:
            yield row(NEWEST, newest_of(pa.concat_tables(self.newest)))
        for what, table in self.sieve.told() if self.sieve is not None else ():
            yield row(what, table)
        for (name, parts), taking in zip(self.parts.items(), self.of.takings.values(), strict=True):
            if parts is None or parts:
                yield row(name, taking.together(parts) if parts is not None else None)


def added(taking: Taking, parts: list[pa.Table] | None, new: pa.Table | None) -> list[pa.Table] | None:
    """Some more parts of a pipeline; None once it cannot take something."""
    if parts is None or new is None:
        return None
    both = [*parts, new]
    if sum(one.num_rows for one in both[1:]) <= max(MOST_PARTS, both[0].num_rows):
        return both
    whole = taking.together(both)
    return None if whole is None else [whole]


def row(what: str, data: pa.Table | None) -> pa.RecordBatch:
    columns = [pa.array([what], pa.string()), pa.array([None if data is None else packed(data)], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["what", "data"])
