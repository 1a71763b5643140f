"""Columns of archive and quarantine for ranges of time, read without Spark: by another reader, and in a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from tally.base.duration import from_millis
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Topic
from tally.sources.witnesses.verification import unreadable


def columns(
    table: DeltaTable | None, topic: Topic, names: Sequence[str], time: str, ranges: Sequence[Range], *, who: str
) -> Iterator[pa.RecordBatch]:
    """These columns of the rows whose time lies in the ranges; `who` is the pipeline that is told of a broken file."""
    if table is None or not ranges:
        return
    wanted = merge(ranges)
    bounds = np.array(wanted, dtype="int64").reshape(-1) * 1000
    first, last = from_millis(wanted[0][0]), from_millis(wanted[-1][1] - 1)
    days = f"_date >= DATE '{first:%Y-%m-%d}' AND _date <= DATE '{last:%Y-%m-%d}'"
    try:
        rows = table.to_pyarrow_dataset(file_pruning_predicate=days).scanner(
            columns=list(dict.fromkeys([time, *names]))
        )
        for batch in rows.to_batches():
            times = batch.column(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
            inside = np.searchsorted(bounds, times, side="right") % 2 == 1
            yield batch.select(list(names)).filter(pa.array(inside))
    except (OSError, pa.ArrowException):
        raise unreadable(topic, who) from None
