"""The two Delta tables of a pipeline as DuckDB reads them: one version of each, only the files of the range."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tally.base.duration import from_millis
from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.base.sql_text import literal, quoted
from tally.catalog.spec import Pipeline

if TYPE_CHECKING:
    import duckdb
    from deltalake import DeltaTable

DUCKDB_TYPES = {
    "string": "VARCHAR", "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER",
    "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "binary": "BLOB", "date": "DATE",
    "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TableSnapshot:
    """One version of one layer's table: its columns (name -> DuckDB type) and, in a range, its rows."""

    delta: DeltaTable
    columns: dict[str, str]

    @property
    def visible(self) -> dict[str, str]:
        """The columns that are the pipeline's own; what begins with an underscore is Tally's."""
        return {name: type for name, type in self.columns.items() if not name.startswith("_")}

    def select(self, connection: duckdb.DuckDBPyConnection, names: Sequence[str], rows: Range) -> str:
        """SQL of these columns of the rows whose window starts in the range."""
        typed = ", ".join(f"CAST({quoted(n)} AS {self.columns[n]}) AS {quoted(n)}" for n in names)
        wanted = rows.of_files() or None
        files = self.delta.file_uris(file_pruning_predicate=wanted)
        if not files:
            return no_rows({name: self.columns[name] for name in names})
        if "://" in files[0]:  # DuckDB's own parquet reader needs a download to read an object store; delta-rs does not
            source = f"scan_{id(self)}"
            connection.register(source, self.delta.to_pyarrow_dataset(file_pruning_predicate=wanted))
        else:  # delta-rs gives local paths percent-encoded
            source = f"read_parquet([{', '.join(literal(unquote(file)) for file in files)}], hive_partitioning = false)"
        return f"SELECT * FROM (SELECT {typed} FROM {source}) {rows.of_rows()}"


@dataclass(frozen=True, kw_only=True)
class Range:
    """Windows that start in [from, to), in milliseconds; None is no bound."""

    from_ms: int | None
    to_ms: int | None

    def of_rows(self) -> str:
        parts = []
        if self.from_ms is not None:
            parts.append(f"window_start >= {instant(self.from_ms)}")
        if self.to_ms is not None:
            parts.append(f"window_start < {instant(self.to_ms)}")
        return f"WHERE {' AND '.join(parts)}" if parts else ""

    def of_files(self) -> str:
        """By the partition column, exact to the day; inside a file the parquet reader skips by its statistics."""
        parts = []
        if self.from_ms is not None:
            parts.append(f"_date >= DATE '{from_millis(self.from_ms):%Y-%m-%d}'")
        if self.to_ms is not None:
            parts.append(f"_date <= DATE '{from_millis(self.to_ms - 1):%Y-%m-%d}'")
        return " AND ".join(parts)


def open_snapshot(layer: str, pipeline: Pipeline) -> TableSnapshot | None:
    """The newest version of a layer's table, or None where nothing was ever written."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    path = settings().table(layer, pipeline.name, pipeline.version)
    try:
        delta = DeltaTable(path)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise TallyError(
            f"the {layer} table at {path} cannot be read: {str(error).splitlines()[0]}",
            pipeline=pipeline.name,
            field="TALLY_LAKE",
            cure="check the path and its rights",
        ) from None
    fields = json.loads(delta.schema().to_json())["fields"]
    return TableSnapshot(delta=delta, columns={field["name"]: duckdb_type(field["type"]) for field in fields})


def duckdb_type(delta: Any) -> str:
    """DuckDB's name of a type in a Delta schema."""
    if isinstance(delta, str):
        return DUCKDB_TYPES.get(delta, delta.upper())
    if delta["type"] == "array":
        return f"{duckdb_type(delta['elementType'])}[]"
    if delta["type"] == "map":
        return f"MAP({duckdb_type(delta['keyType'])}, {duckdb_type(delta['valueType'])})"
    return f"STRUCT({', '.join(quoted(f['name']) + ' ' + duckdb_type(f['type']) for f in delta['fields'])})"


def declared_columns(pipeline: Pipeline) -> dict[str, str]:
    """What is known of the output before any of it was written: the window, and the key as its topic types it."""
    types = {field.name: field.type for topic in reversed(pipeline.reads) for field in topic.schema}
    keys = {name: types.get(name, "STRING") for name in pipeline.key}
    names = {"TIMESTAMP": "TIMESTAMPTZ", "STRING": "VARCHAR"}
    window = {"window_start": "TIMESTAMPTZ", "window_end": "TIMESTAMPTZ"}
    return {**window, **{name: names.get(kind, kind if "<" not in kind else "VARCHAR") for name, kind in keys.items()}}


def no_rows(columns: dict[str, str]) -> str:
    """SQL of these columns without a row."""
    return (
        f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {quoted(name)}' for name, kind in columns.items())} WHERE false"
    )


def instant(ms: int) -> str:
    """SQL of an instant, as a constant that a scan can compare a file's statistics with."""
    moment: datetime = from_millis(ms).astimezone(UTC)
    return f"TIMESTAMPTZ '{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond:06d}+00'"
