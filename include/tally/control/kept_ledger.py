"""The ledger's entries as the lake keeps them: a small Delta table of each stream, written by its driver only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.control.micro_batch import HELD, MicroBatch, from_row
from tally.lake import delta

# Entries held in memory, and written in one transaction: seconds for which others wait for the control store.
PART = 20_000


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
    table = delta.table(path(stream))
    if table is not None:
        yield from read(stream, table.to_pyarrow_table())


def entries(stream: Stream) -> list[MicroBatch]:
    """All of them, in the order in which the micro-batches ran."""
    return [entry for part in parts(stream) for entry in part]


def some(stream: Stream, generation: int, first: int, last: int) -> list[MicroBatch]:
    """Those of a generation from one number to another, or a refusal that names what is lost."""
    rows = between(stream, generation, first, last)
    found = [entry for part in read(stream, rows) for entry in part] if rows is not None else []
    if [entry.batch for entry in found] != list(range(first, last + 1)):
        raise AnswerIsNo(
            f"micro-batches {first} to {last} of {stream.name} are not all in {path(stream)}, and nowhere else",
            field="ledger",
            cure="put back that table",
        )
    return found


def has(stream: Stream, generation: int, first: int, last: int) -> bool:
    """Whether each of them is there."""
    rows = between(stream, generation, first, last, columns=["batch"])
    return rows is not None and len(pc.unique(rows["batch"])) == last + 1 - first


def between(
    stream: Stream, generation: int, first: int, last: int, columns: Sequence[str] | None = None
) -> pa.Table | None:
    """The rows of those; None where there is no table."""
    table = delta.table(path(stream))
    if table is None:
        return None
    wanted = (pc.field("generation") == generation) & (pc.field("batch") >= first) & (pc.field("batch") <= last)
    return table.to_pyarrow_dataset().to_table(columns=columns and list(columns), filter=wanted)


def read(stream: Stream, rows: pa.Table) -> Iterator[list[MicroBatch]]:
    last = (0, -1)
    for some in rows.sort_by([("generation", "ascending"), ("batch", "ascending")]).to_batches(PART):
        found = []
        for row in some.to_pylist():
            if (row["generation"], row["batch"]) != last:
                found.append(entry_of(stream, row))
            last = (row["generation"], row["batch"])
        yield found


def entry_of(stream: Stream, row: dict[str, Any]) -> MicroBatch:
    told = {"ranges": json.loads(row["ranges"]), "ids": row.get("ids") or HELD}
    return from_row({**row, "pipeline": stream.name, "version": stream.version, **told})
