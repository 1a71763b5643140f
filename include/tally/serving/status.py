"""How every pipeline is, for people and scripts: its stream's health, and what of it is sealed."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from tally.catalog.duration import from_millis, iso
from tally.catalog.load import catalogue
from tally.catalog.spec import Pipeline
from tally.control import seals, streams
from tally.control.store import store
from tally.control.tables import ledger
from tally.errors import TallyError


def statuses() -> list[dict[str, Any]]:
    """One document a pipeline of the catalogue, in order of name; a broken definition has one too."""
    known = catalogue()
    rows = [status(pipeline) for pipeline in known.pipelines.values()]
    rows += [broken(name, fault) for name, fault in known.broken.items()]
    return sorted(rows, key=lambda row: str(row["pipeline"]))


def status(pipeline: Pipeline) -> dict[str, Any]:
    """Health's fields, then version, events_in, newest_window, slots sealed, partial and held, events explained."""
    from tally.supervise.health import diagnose

    newest = int((streams.stream(pipeline.name) or {}).get("newest_window", 0))
    counts = seals.counts(pipeline.name, pipeline.version)
    return {
        **diagnose(pipeline).as_dict(),
        "version": pipeline.version,
        "events_in": events_in(pipeline),
        "newest_window": iso(from_millis(newest)) if newest > 0 else None,
        "sealed": counts.get("sealed", 0),
        "partial": counts.get("partial", 0),
        "held": counts.get("held", 0),
        "explained": seals.explained(pipeline.name, pipeline.version),
    }


def broken(name: str, fault: TallyError) -> dict[str, Any]:
    """The same fields where nothing of the pipeline can be known until its file is mended."""
    from tally.supervise.health import Health

    health = Health(
        pipeline=name,
        state="failed",
        reason=f"its definition cannot be loaded: {str(fault).splitlines()[0]}",
        lag_records=None,
        watermark=None,
        freshness_seconds=None,
        sealed_to=None,
        unexplained=0,
        next_step=f"{fault.cure or 'mend the file'}; tally check shows every fault",
        watcher_seconds=None,
    )
    counts = dict.fromkeys(("events_in", "sealed", "partial", "held", "explained"), 0)
    return {**health.as_dict(), "version": None, "newest_window": None, **counts}


def events_in(pipeline: Pipeline) -> int:
    """Records that the stream took from Kafka; a generation's micro-batches leave no offset out between them."""
    mine = (ledger.c.pipeline == pipeline.name) & (ledger.c.version == pipeline.version)
    bounds = (
        sa.select(ledger.c.generation, sa.func.min(ledger.c.batch), sa.func.max(ledger.c.batch))
        .where(mine)
        .group_by(ledger.c.generation)
    )
    total = 0
    with store().connect() as connection:
        for generation, first, last in connection.execute(bounds).all():
            ranges = sa.select(ledger.c.ranges).where(mine, ledger.c.generation == generation)
            oldest = connection.execute(ranges.where(ledger.c.batch == first)).scalar_one()
            newest = connection.execute(ranges.where(ledger.c.batch == last)).scalar_one()
            for topic, partitions in newest.items():
                for partition, (begin, end) in partitions.items():
                    total += end - oldest.get(topic, {}).get(partition, (begin, end))[0]
    return total
