"""The ledger's entries as the lake keeps them: a small Delta table of each stream, written by its driver only.

A row holds up to some thousand of them, packed; tables of an older make have a row for each as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.control.micro_batch import HELD, MicroBatch, from_row
from tally.control.packed_ledger import unpacked
from tally.lake import delta

# Entries held in memory, and written in one transaction: seconds for which others wait for the control store. Not fewer
# than a row may hold.
PART = 20_000
# Rows in memory: of packed ones some megabytes.
AT_ONCE = 500


class Stream(Protocol):
    """Under which name and version the ledger has micro-batches: a pipeline, or a topic's stream."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Told:
    """What each commit of the table says: the last entry that is kept, and every day ever trimmed."""

    generation: int = 0
    batch: int = -1
    trimmed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Named:
    """A stream by its name and version alone."""

    name: str
    version: str


def path(stream: Stream) -> str:
    return settings().table("ledger", *stream.name.split(), stream.version)


def newest(stream: Stream) -> Told:
    """What the table's newest commit says."""
    found = delta.newest(path(stream), "ledger")
    return Told(**{f.name: found.words[f.name] for f in fields(Told)}) if found else Told()


def parts(stream: Stream) -> Iterator[list[MicroBatch]]:
    """Every entry that is kept, once, oldest first, some thousands at a time: a year of them is too long for a list."""
    rows = table_of(stream)
    found: list[MicroBatch] = []
    for entry in [] if rows is None else read(stream, rows):
        found.append(entry)
        if len(found) >= PART:
            yield found
            found = []
    if found:
        yield found


def entries(stream: Stream) -> list[MicroBatch]:
    """All of them, in the order in which the micro-batches ran."""
    return [entry for part in parts(stream) for entry in part]


def some(stream: Stream, generation: int, first: int, last: int) -> list[MicroBatch]:
    """Those of a generation from one number to another, or a refusal that names what is lost."""
    rows = table_of(stream, (generation, first, last))
    found = [entry for entry in read(stream, rows) if first <= entry.batch <= last] if rows is not None else []
    if [entry.batch for entry in found] != list(range(first, last + 1)):
        raise AnswerIsNo(
            f"micro-batches {first} to {last} of {stream.name} are not all in {path(stream)}, and nowhere else",
            field="ledger",
            cure="put back that table",
        )
    return found


def has(stream: Stream, generation: int, first: int, last: int) -> bool:
    """Whether each of them is there."""
    rows, reached = table_of(stream, (generation, first, last), packed=False), first - 1
    for row in [] if rows is None else rows.select(["first", "batch"]).to_pylist():
        if row["first"] > reached + 1:
            return False
        reached = max(reached, row["batch"])
    return reached >= last


def table_of(stream: Stream, wanted: tuple[int, int, int] | None = None, *, packed: bool = True) -> pa.Table | None:
    """The rows that tell of some entries (generation, first and last number), or all, by the first that each tells of.

    None where there is no table; without what is `packed` in them, where that is not asked for.
    """
    table = delta.table(path(stream))
    if table is None:
        return None
    dataset, batch = table.to_pyarrow_dataset(), pc.field("batch")
    begins = pc.coalesce(pc.field("first"), batch) if "first" in dataset.schema.names else batch
    chosen = None
    if wanted is not None:
        generation, first, last = wanted
        chosen = (pc.field("generation") == generation) & (batch >= first) & (begins <= last)
    names = dataset.schema.names if packed else ["generation", "batch"]
    columns = {**{name: pc.field(name) for name in names}, "first": begins}
    in_order = [("generation", "ascending"), ("first", "ascending")]
    return dataset.to_table(columns=columns, filter=chosen).sort_by(in_order)


def read(stream: Stream, rows: pa.Table) -> Iterator[MicroBatch]:
    """What rows tell of, in the order of the first that each tells of; whatever they tell twice, once."""
    last = (0, -1)
    for some in rows.to_batches(AT_ONCE):
        for row in some.to_pylist():
            for entry in entries_of(stream, row):
                if (entry.generation, entry.batch) > last:
                    last = entry.generation, entry.batch
                    yield entry


def entries_of(stream: Stream, row: dict[str, Any]) -> list[MicroBatch]:
    """The entries of a row, in their order."""
    if row.get("packed") is None:
        return [entry_of(stream, row)]
    return unpacked(row["packed"], stream.name, stream.version, row["generation"])


def entry_of(stream: Stream, row: dict[str, Any]) -> MicroBatch:
    """The one entry that a row of an older make tells of."""
    told = {name: row[name] for name in ("generation", "batch", "late_watermark", "watermark", "rows")}
    told |= {name: row[name] for name in ("delta_version", "committed_at")}
    told |= {"ranges": json.loads(row["ranges"]), "ids": row.get("ids") or HELD}
    return from_row({**told, "pipeline": stream.name, "version": stream.version})
