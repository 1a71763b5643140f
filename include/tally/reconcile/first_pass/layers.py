"""Both layers at a cut, read without a JVM: what layers.py reads with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tally.batch import restate
from tally.catalog.ranges import Range
from tally.kinds import kind_of
from tally.lake import duck
from tally.reconcile import revisions, trimmed
from tally.reconcile.accounts import supports
from tally.reconcile.cut import Cut
from tally.reconcile.first_pass import events, rows, unsure
from tally.reconcile.first_pass.shape import shape_of
from tally.reconcile.first_pass.tables import Snapshot
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.layers import Layers
from tally.reconcile.meaning import Meaning
from tally.speed import commit
from tally.speed.upkeep.fold import trimmed_days

if TYPE_CHECKING:
    import duckdb


def read(cut: Cut, ranges: Sequence[Range], meaning: Meaning) -> Layers:
    """The layers without their frames; `Unsure` where Spark is to read them."""
    import duckdb
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    unsure.check_surroundings()
    if cut.filters:
        raise Unsure("the function leaves events out, and only Spark knows which")
    if trimmed.within(ranges, trimmed_days(cut.pipeline, cut.speed_version)):
        raise Unsure("the stream's rows are trimmed, and its replay stands in for them")
    connection = duck.connected()
    try:
        return at_cut(connection, cut, ranges, meaning)
    except (duckdb.Error, DeltaError, pa.ArrowException, OSError) as error:
        raise Unsure(f"it cannot read: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()


def at_cut(connection: duckdb.DuckDBPyConnection, cut: Cut, ranges: Sequence[Range], meaning: Meaning) -> Layers:
    """One pass over the rows of both layers, and one over each topic's events."""
    pipeline, kind = cut.pipeline, kind_of(cut.pipeline)
    batch = Snapshot(path=restate.path(pipeline), version=cut.batch_version)
    stream = Snapshot(path=commit.path(pipeline), version=cut.speed_version)
    until = None if cut.travels else commit.order(cut.last.generation, cut.last.batch)
    shape = shape_of(batch, stream, pipeline)
    if not set(shape.floating) <= meaning.made_of.keys():
        raise Unsure("a floating column is none of the function's")
    slots = rows.by_slot(connection, batch, stream, pipeline, ranges, until=until, whole=kind.row_by_row)
    sealed = revisions.sealed(pipeline, ranges)
    ends = {slot: one.last_end for slot, one in slots.items()}
    made_of = [meaning.made_of[name] for name in shape.floating]
    accounts = events.account(connection, cut, ranges, ends, events.sized(pipeline.reads, made_of))
    return Layers(
        sides={},
        slots=slots,
        sealed=sealed,
        accounts=accounts,
        supports=supports(cut, [one for _, one in accounts], revisions.with_windows(cut, ends, sealed)),
        made_of=made_of,
        single=kind.row_by_row,
    )
