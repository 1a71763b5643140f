"""What the control store says of a range of windows: which slots were judged, and how far the stream is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import sqlalchemy as sa

from tally.base.duration import millis
from tally.base.errors import TallyError
from tally.catalog.spec import Pipeline
from tally.control import beginnings, ledger
from tally.control.store import store
from tally.control.tables import seals

Table = TypeVar("Table")
Layer = Literal["served", "speed", "batch"]
LAYERS: tuple[Layer, ...] = get_args(Layer)
OPEN, CLOSED, PARTIAL = "open", "closed", "partial"
# Before every time that an event may have.
NO_BEGINNING = -(1 << 52)
ADDED = ("state", "revision")
WINDOW = ("window_start", "window_end")
# A seal that changes between our look at the seals and at the tables makes us look again. More than a few times in
# the milliseconds that takes means that a long range is being sealed, and then the last look is as good as any.
LOOKS = 5


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The slots of a range that have a seals row: (start in ms, state to show, revision); closed up to, in ms.

    What starts before `begins` (in ms; NO_BEGINNING: nothing does) may lack events that no layer could read.
    """

    slots: tuple[tuple[int, str, int], ...]
    watermark: int
    begins: int


def judged(pipeline: Pipeline, from_ms: int | None, to_ms: int | None) -> Judged:
    """The judged slots that a window starting in [from, to) can lie in."""
    query = sa.select(seals.c.slot_start, seals.c.state, seals.c.revision).where(
        seals.c.pipeline == pipeline.name, seals.c.version == pipeline.version
    )
    if from_ms is not None:
        query = query.where(seals.c.slot_start >= pipeline.slot(from_ms))
    if to_ms is not None:
        query = query.where(seals.c.slot_start < to_ms)
    with store().connect() as connection:
        rows = connection.execute(query.order_by(seals.c.slot_start)).all()
    newest = ledger.newest(pipeline.name, pipeline.version)
    begun = beginnings.of(pipeline)

    def shown(start: int, state: str) -> str:
        # A slot whose seal was taken back: its batch row is still the best there is, but nobody vouches for it.
        if state == "unsealed":
            return PARTIAL if begun.cuts(start) else CLOSED
        return state

    return Judged(
        slots=tuple((start, shown(start, state), revision) for start, state, revision in rows),
        watermark=newest.watermark - millis(pipeline.linger) if newest else -1,
        begins=NO_BEGINNING if begun.at is None else begun.at,
    )


def unmoved(
    pipeline: Pipeline, from_ms: int | None, to_ms: int | None, opened: Callable[[Layer], Table]
) -> tuple[Judged, Table, Table]:
    """The judged slots, and the speed and the batch table as they were opened while these stood.

    A restatement unseals before it writes and a seal follows what it seals, so seals that are the same before and
    after describe the tables in between.
    """
    slots = judged(pipeline, from_ms, to_ms)
    for _ in range(LOOKS):
        speed, batch = opened("speed"), opened("batch")
        again = judged(pipeline, from_ms, to_ms)
        if (again.slots, again.begins) == (slots.slots, slots.begins):
            break
        slots = again
    return slots, speed, batch


def check_request(pipeline: Pipeline, from_ms: int | None, to_ms: int | None, layer: str) -> None:
    """Refuse a layer that there is not and a range that ends before it begins."""
    if layer not in LAYERS:
        raise TallyError(
            f"no layer {layer!r}", pipeline=pipeline.name, field="layer", cure=f"one of: {', '.join(LAYERS)}"
        )
    if from_ms is not None and to_ms is not None and to_ms < from_ms:
        raise TallyError(
            "the range ends before it begins", pipeline=pipeline.name, field="to", cure="swap --from and --to"
        )


def check_columns(pipeline: Pipeline, columns: list[str]) -> None:
    """Refuse output columns that bear the names that a reader adds."""
    for name in columns:
        if name.lower() in ADDED:
            raise TallyError(
                f"the pipeline's output has a column {name!r}, which every reader adds",
                pipeline=pipeline.name,
                field=name,
                cure=f"call it something else in {pipeline.where}",
            )
