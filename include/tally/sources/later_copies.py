"""The places of archived events that are not counted: an earlier copy of their unique id lies within the lateness.

Among millions of ids a few have copies. Spark would sort all events by their ids, and once more by their places, to
leave these few out; here two columns are looked through for ids that come again, and what is found is data.
"""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
from deltalake.exceptions import DeltaError

from tally.base.duration import from_millis, millis
from tally.base.sql_text import quoted
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Topic
from tally.lake import delta, duck
from tally.sources import archive

# Ids that are the same for DuckDB just where Spark says so.
IDS = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string)
# Beside the heap of the JVM; what does not fit goes to disk: thirty million ids do.
MEMORY = "1GB"
LATER = """
WITH repeated AS (
    SELECT {id} FROM archive WHERE {near} GROUP BY {id} HAVING count(*) > 1
), copies AS (
    SELECT {id} AS id, epoch_us({time}) AS moment,
        {{'broker': epoch_us(_broker_time), 'partition': _partition, 'offset': _offset}} AS place
    FROM archive WHERE {near} AND {id} IN (SELECT {id} FROM repeated)
), first AS (
    SELECT place, min(place) OVER (
        PARTITION BY id ORDER BY moment RANGE BETWEEN {span} PRECEDING AND {span} FOLLOWING
    ) AS first FROM copies
)
SELECT place.partition AS _partition, place.offset AS _offset FROM first WHERE first < place
"""


def later_copies(topic: Topic, ranges: Sequence[Range], version: int | None, until: int | None) -> pa.Table | None:
    """Partition and offset of those with event times in the ranges, and of some more around these.

    The archive is that of a Delta version, up to an ingest; None: all of it. None is given where only Spark can tell.
    """
    table, wanted = delta.table(archive.path(topic), version), merge(ranges)
    if table is None or topic.unique is None or not wanted:
        return None
    lateness = millis(topic.lateness)
    first, last = (from_millis(edge) for edge in (wanted[0][0] - lateness, wanted[-1][1] + lateness))
    days = f"_date >= DATE '{first:%Y-%m-%d}' AND _date <= DATE '{last:%Y-%m-%d}'"
    time = quoted(topic.event_time)
    near = f"{time} >= '{first.isoformat()}' AND {time} < '{last.isoformat()}'"
    if until is not None:
        near += f" AND _ingest <= {until}"
    try:
        events = table.to_pyarrow_dataset(file_pruning_predicate=days)
        if not any(known(events.schema.field(topic.unique).type) for known in IDS):
            return None
        return found(events, LATER.format(id=quoted(topic.unique), time=time, near=near, span=lateness * 1000))
    except (duckdb.Error, DeltaError, pa.ArrowException, OSError):
        return None  # Spark meets the same, and says it in the words that are known


def found(events: Any, query: str) -> pa.Table:
    """What a query of the `archive` gives."""
    with TemporaryDirectory(prefix="tally-copies-") as folder, duck.connected() as connection:
        connection.execute(f"SET memory_limit = '{MEMORY}'; SET temp_directory = '{folder}'")
        connection.register("archive", events)
        return connection.sql(query).to_arrow_table()
