"""The reader without a JVM: one row per window and key, with its state and revision, from one version of each table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tally.base.duration import millis
from tally.base.sql_text import quoted
from tally.catalog.spec import Pipeline
from tally.lake import duck
from tally.serving.state import (
    CLOSED,
    OPEN,
    PARTIAL,
    WINDOW,
    Judged,
    Layer,
    check_columns,
    check_request,
    unmoved,
)
from tally.serving.table_snapshot import Range, declared_columns, no_rows, open_snapshot

if TYPE_CHECKING:
    import duckdb
    import pyarrow

LAYER_SQL = {
    # A table that somebody harmed may have a row twice: nobody vouches for it then, and still one row a key is served.
    "served": """
        SELECT {names}, _state AS state, _revision AS revision FROM batch JOIN slots ON _slot = slot_of(window_start)
        WHERE _state = 'sealed'
        UNION ALL
        SELECT {names}, _state, _revision FROM batch JOIN slots ON _slot = slot_of(window_start)
        WHERE _state <> 'sealed' QUALIFY row_number() OVER (PARTITION BY {front} ORDER BY {order}) = 1
        UNION ALL
        SELECT {names}, stream_state(window_start, window_end), 0 FROM speed
    """,
    "speed": "SELECT {names}, stream_state(window_start, window_end) AS state, 0 AS revision FROM speed",
    "batch": """
        SELECT {names},
            coalesce(_state, stream_state(window_start, window_end)) AS state, coalesce(_revision, 0) AS revision
        FROM batch LEFT JOIN slots ON _slot = slot_of(window_start)
    """,
}


def read(
    pipeline: Pipeline, from_ms: int | None = None, to_ms: int | None = None, layer: Layer = "served"
) -> pyarrow.Table:
    """The rows of windows that start in [from, to), in order of window_start, window_end and key.

    Columns: window_start and window_end (microseconds, UTC), the key, the measures, state and revision. Nothing
    written yet is a table without rows.
    """
    return rows(pipeline, from_ms, to_ms, layer).arrow()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What `read` returns, not yet computed: SQL over one version of each table, on a DuckDB connection of its own."""

    connection: duckdb.DuckDBPyConnection
    sql: str
    order: tuple[str, ...]
    columns: dict[str, str]  # name -> DuckDB type

    def arrow(self) -> pyarrow.Table:
        """All rows, in order."""
        return self.connection.sql(self.text()).to_arrow_table()

    def query(self, select: str = "*", *, last: int | None = None) -> duckdb.DuckDBPyConnection:
        """Run it; `last` keeps only so many rows, those at the end."""
        return self.connection.execute(self.text(select, last))

    def text(self, select: str = "*", last: int | None = None) -> str:
        """SQL of the rows in order."""
        by = ", ".join(f"r.{quoted(name)} ASC NULLS FIRST" for name in self.order)
        source = f"({self.sql})"
        if last is not None:
            source = f"(SELECT * FROM {source} AS r ORDER BY {by} LIMIT {last} OFFSET {max(0, self.count() - last)})"
        return f"SELECT {select} FROM {source} AS r ORDER BY {by}"

    def count(self) -> int:
        """How many rows there are."""
        counted = self.connection.execute(f"SELECT count(*) FROM ({self.sql})").fetchone()
        return int(counted[0]) if counted else 0


def rows(pipeline: Pipeline, from_ms: int | None = None, to_ms: int | None = None, layer: Layer = "served") -> Rows:
    """What `read` returns, before it is computed."""
    check_request(pipeline, from_ms, to_ms, layer)
    slots, speed, batch = unmoved(pipeline, from_ms, to_ms, lambda layer: open_snapshot(layer, pipeline))
    known = batch or speed
    columns = known.visible if known else declared_columns(pipeline)
    check_columns(pipeline, list(columns))
    front = [*WINDOW, *pipeline.key]
    names = [*front, *(name for name in columns if name not in front)]

    connection = duck.connected()
    define_slots(connection, pipeline, slots)
    span = Range(from_ms=from_ms, to_ms=to_ms)
    nothing = no_rows({name: columns[name] for name in names})
    only = "WHERE slot_of(window_start) NOT IN (SELECT _slot FROM slots)" if layer == "served" else ""
    newest = newest_rows(speed.select(connection, [*names, "_batch"], span), names, front, only) if speed else nothing
    connection.execute(f"CREATE TEMP VIEW speed AS {newest}")
    connection.execute(f"CREATE TEMP VIEW batch AS {batch.select(connection, names, span) if batch else nothing}")
    listed, ordered = ", ".join(map(quoted, names)), ", ".join(f"{quoted(name)} ASC NULLS FIRST" for name in names)
    return Rows(
        connection=connection,
        sql=LAYER_SQL[layer].format(names=listed, front=", ".join(map(quoted, front)), order=ordered),
        order=tuple(front),
        columns={**{name: columns[name] for name in names}, "state": "VARCHAR", "revision": "INTEGER"},
    )


def define_slots(connection: duckdb.DuckDBPyConnection, pipeline: Pipeline, slots: Judged) -> None:
    """The judged slots as a table, the slot of a window, and the state of a row that only the stream vouches for."""
    step = millis(pipeline.window.step) * 1000
    micros = "epoch_us(start)"
    connection.execute(f"CREATE TEMP MACRO slot_of(start) AS {micros} - (({micros} % {step}) + {step}) % {step}")
    cut = f"WHEN epoch_us(start) < {slots.begins * 1000} THEN '{PARTIAL}'"
    closed = f"CASE {cut} WHEN epoch_us(finish) <= {slots.watermark * 1000} THEN '{CLOSED}' ELSE '{OPEN}' END"
    connection.execute(f"CREATE TEMP MACRO stream_state(start, finish) AS {closed}")
    connection.execute("CREATE TEMP TABLE slots (_slot BIGINT, _state VARCHAR, _revision INTEGER)")
    if slots.slots:
        starts, states, revisions = zip(*slots.slots, strict=True)
        connection.execute(
            "INSERT INTO slots SELECT unnest(?::BIGINT[]) * 1000, unnest(?::VARCHAR[]), unnest(?::INTEGER[])",
            [list(starts), list(states), list(revisions)],
        )


def newest_rows(speed: str, names: Sequence[str], identity: Sequence[str], only: str) -> str:
    """SQL of the speed rows, of each window and key only what the newest micro-batch wrote.

    Rows of judged slots are left out first (`only`): most of the table is sealed, and ranking it would be for nothing.
    """
    listed, same = ", ".join(map(quoted, names)), ", ".join(map(quoted, identity))
    return (
        f"SELECT {listed} FROM ({speed}) {only} "
        f"QUALIFY row_number() OVER (PARTITION BY {same} ORDER BY _batch DESC) = 1"
    )


def written(pipeline: Pipeline) -> bool:
    """Whether either layer ever wrote a row of this version."""
    return any(open_snapshot(layer, pipeline) for layer in ("speed", "batch"))
