"""The rows of a Delta table as of a version, as DuckDB reads them: the files by the log, read here once more.

Two readers of the log must name the same files: what delta-rs says is not taken for granted where Spark is not asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tally.base.duration import from_millis
from tally.base.lines import lines_of
from tally.base.sql_text import literal, quoted
from tally.catalog.ranges import Range, merge
from tally.reconcile.first_pass.unsure import Unsure

if TYPE_CHECKING:
    import duckdb

# As many as Spark compares with literals; the rows between them are left out by a join.
FEW = 4
TYPES = {
    "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}  # fmt: skip
# What a column may say of itself beside its type: where it was an event time in the stream, and what a person wrote.
KNOWN = {"spark.watermarkDelayMs", "comment"}
Days = Mapping[str, str]  # the day (its folder's) of each file of a version


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One version of a table of windows or events, partitioned by `_date`."""

    path: str
    version: int

    @cached_property
    def types(self) -> dict[str, str]:
        """The columns and their types, as Delta has them; a type or a feature that is not known is refused."""
        table = DeltaTable(self.path, version=self.version)
        protocol = table.protocol()
        if protocol.min_reader_version != 1:
            raise Unsure(f"{self.path} wants a reader of version {protocol.min_reader_version}")
        known = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
        mine, theirs = set(self.files), set(map(unquote, known.column("path").to_pylist()))
        if mine != theirs:
            raise Unsure(f"two readers of the log of {self.path} name other files: {sorted(mine ^ theirs)[:2]}")
        fields = json.loads(table.schema().to_json())["fields"]
        if any(set(field["metadata"]) - KNOWN for field in fields):
            raise Unsure(f"columns of {self.path} say more than their type")
        return {field["name"]: field["type"] if isinstance(field["type"], str) else "nested" for field in fields}

    @cached_property
    def files(self) -> Days:
        return listed(self.path, self.version)

    def read(self, connection: duckdb.DuckDBPyConnection, names: Sequence[str], time: str, ranges: Sequence[Range],
             more: str = "true") -> str:  # fmt: skip
        """SQL of these columns of the rows whose time lies in the ranges; the types of the files are those declared."""
        types = {name: duckdb_type(self.types[name]) for name in names}
        parts = [self.part(connection, types, time, one, more) for one in merge(ranges, most=FEW)]
        parts = [part for part in parts if part]
        if not parts:
            return (
                f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {quoted(n)}' for n, kind in types.items())} WHERE false"
            )
        wanted = merge(ranges)
        found = " UNION ALL ".join(parts)
        return found if len(wanted) <= FEW else of_ranges(connection, found, time, wanted)

    def part(
        self, connection: duckdb.DuckDBPyConnection, types: Mapping[str, str], time: str, one: Range, more: str
    ) -> str:
        first, last = from_millis(one[0]).date().isoformat(), from_millis(one[1] - 1).date().isoformat()
        files = [f"{self.path}/{file}" for file, day in self.files.items() if first <= day <= last]
        if not files:
            return ""
        source, columns = parquet(files), ", ".join(map(quoted, types))
        for file in one_of_each_schema(connection, files):  # DuckDB gives the rows of all files the types of the first
            found = connection.execute(f"DESCRIBE SELECT {columns} FROM {parquet([file])}").fetchall()
            told = {name: kind for name, kind, *_ in found}
            if told != types:
                raise Unsure(f"files of {self.path} hold other types than declared: {told}")
        start, end = (f"make_timestamptz({ms * 1000})" for ms in one)
        inside = f"{quoted(time)} >= {start} AND {quoted(time)} < {end} AND {more}"
        return f"SELECT {columns} FROM {source} WHERE {inside}"


def parquet(files: Sequence[str]) -> str:
    """SQL of the rows of files."""
    return f"read_parquet([{', '.join(map(literal, files))}], hive_partitioning = false)"


def one_of_each_schema(connection: duckdb.DuckDBPyConnection, files: Sequence[str]) -> list[str]:
    schema = "list((name, num_children, duckdb_type) ORDER BY column_id) AS schema"
    of_each = f"SELECT file_name, {schema} FROM parquet_schema([{', '.join(map(literal, files))}]) GROUP BY file_name"
    found = connection.execute(f"SELECT min(file_name) FROM ({of_each}) GROUP BY schema").fetchall()
    return [file for (file,) in found]


def of_ranges(connection: duckdb.DuckDBPyConnection, rows: str, time: str, wanted: Sequence[Range]) -> str:
    """SQL of the rows of many ranges, which are data."""
    name = f"ranges_{abs(hash((rows, tuple(wanted))))}"
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} (_start TIMESTAMPTZ, _end TIMESTAMPTZ)")
    starts, ends = ([edge * 1000 for edge in edges] for edges in zip(*wanted, strict=True))
    connection.execute(
        f"INSERT INTO {name} SELECT make_timestamptz(a), make_timestamptz(b) "
        "FROM (SELECT unnest(?::BIGINT[]) AS a, unnest(?::BIGINT[]) AS b)", [starts, ends]
    )  # fmt: skip
    near = f"({rows}) AS r ASOF JOIN {name} AS n ON r.{quoted(time)} >= n._start"
    return f"SELECT r.* FROM {near} WHERE r.{quoted(time)} < n._end"


def listed(path: str, version: int) -> Days:
    """The files of a version with their days, by its newest checkpoint and the entries after that."""
    log, found = Path(path, "_delta_log"), dict[str, str]()
    checkpoints = [int(name.name[:20]) for name in log.glob("*.checkpoint.parquet") if len(name.name) == 39]
    base = max((one for one in checkpoints if one <= version), default=-1)
    try:
        if base >= 0:
            for add in pq.read_table(log / f"{base:020d}.checkpoint.parquet", columns=["add"]).column(0).to_pylist():
                added(found, add)
        for number in range(base + 1, version + 1):
            for line in lines_of((log / f"{number:020d}.json").read_bytes().decode()):
                action = json.loads(line)
                added(found, action.get("add"))
                found.pop(unquote((action.get("remove") or {}).get("path", "")), None)
    except (OSError, ValueError, KeyError) as error:
        raise Unsure(f"the log of {path} is not read to its end: {type(error).__name__}") from None
    return found


def added(found: dict[str, str], add: Mapping[str, Any] | None) -> None:
    if not add or not add.get("path"):
        return
    if add.get("deletionVector"):
        raise Unsure("a file has a deletion vector")
    day = dict(add["partitionValues"]).get("_date")
    if day is None or date.fromisoformat(day).isoformat() != day:
        raise Unsure("a file is of no day")
    found[unquote(add["path"])] = day


def duckdb_type(kind: str) -> str:
    if kind.startswith("decimal("):
        return kind.upper()
    if kind not in TYPES:
        raise Unsure(f"a column is of type {kind}")
    return TYPES[kind]
