"""Which offsets fed which micro-batch, under which watermark, and which Delta commit holds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from tally.control.store import store, upsert
from tally.control.tables import ledger

Ranges = dict[str, dict[int, tuple[int, int]]]


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One applied micro-batch; ranges are half-open, watermarks are event time in milliseconds.

    Partitions stand in the order in which the micro-batch read them, where that matters: see speed/scan.py.
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

    def ends(self, topic: str) -> dict[int, int]:
        return {partition: to for partition, (_, to) in self.ranges.get(topic, {}).items()}


def record(batches: Iterable[MicroBatch]) -> None:
    """Write micro-batches; the same one twice is one row (pipeline, version, generation, batch)."""
    rows = [asdict(batch) for batch in batches]
    with store().begin() as connection:
        upsert(connection, ledger, rows)


def read(pipeline: str, version: str) -> list[MicroBatch]:
    """Every micro-batch of a pipeline's version, in the order in which they ran."""
    query = (
        sa.select(ledger)
        .where(ledger.c.pipeline == pipeline, ledger.c.version == version)
        .order_by(ledger.c.generation, ledger.c.batch)
    )
    with store().connect() as connection:
        return [from_row(row._mapping) for row in connection.execute(query)]


def newest(pipeline: str, version: str) -> MicroBatch | None:
    """The last micro-batch, or None where none ran."""
    query = (
        sa.select(ledger)
        .where(ledger.c.pipeline == pipeline, ledger.c.version == version)
        .order_by(ledger.c.generation.desc(), ledger.c.batch.desc())
        .limit(1)
    )
    with store().connect() as connection:
        row = connection.execute(query).first()
    return from_row(row._mapping) if row else None


def from_row(row: Any) -> MicroBatch:
    ranges = {t: {int(p): (int(a), int(b)) for p, (a, b) in parts.items()} for t, parts in row["ranges"].items()}
    return MicroBatch(**{**row, "ranges": ranges})
