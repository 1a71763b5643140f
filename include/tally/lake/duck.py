"""DuckDB as this product uses it: times in UTC, and nothing on standard output, where what is answered stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def connected() -> duckdb.DuckDBPyConnection:
    """A new connection to nothing but memory; by default, one draws a bar over the output after two seconds."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
    return connection
