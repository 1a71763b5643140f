"""One engine for the control store; opening it makes what tables are missing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from tally.control.tables import metadata
from tally.errors import TallyError
from tally.settings import settings

engines: dict[str, Engine] = {}


def now_ms() -> int:
    """Milliseconds since the epoch, by the wall clock: for what people read, never for what is counted."""
    return time.time_ns() // 1_000_000


def store(url: str | None = None) -> Engine:
    """The engine of the control store, with all tables there."""
    url = url or settings().control_url
    if url not in engines:
        engines[url] = opened(url)
    return engines[url]


def opened(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            Path(parsed.database or "").parent.mkdir(parents=True, exist_ok=True)
            engine = sa.create_engine(url, connect_args={"timeout": 30})
            sa.event.listen(engine, "connect", set_pragmas)
        else:
            engine = sa.create_engine(url, pool_pre_ping=True)
        metadata.create_all(engine)
        add_columns(engine)
    except (SQLAlchemyError, OSError, ImportError) as error:
        raise TallyError(
            f"cannot open the control store: {str(error).splitlines()[0]}",
            field="TALLY_CONTROL" if settings().control else "TALLY_HOME",
            cure="check the URL and its server" if settings().control else "make it a folder that this user can write",
        ) from None
    return engine


def add_columns(engine: Engine) -> None:
    """Give the tables of an older store the columns that it lacks, with their defaults; what is there stays."""
    there = sa.inspect(engine)
    for table in metadata.sorted_tables:
        known = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                add_column(engine, table, column)


def add_column(engine: Engine, table: sa.Table, column: sa.Column[Any]) -> None:
    """Add one column; another process that opens the store now may be the one that does."""
    value = getattr(column.default, "arg", None)
    assert column.nullable or value is not None, f"{table.name}.{column.name} cannot be added: it has no default"
    literal = f" NOT NULL DEFAULT {value!r}" if value is not None else ""
    kind = column.type.compile(engine.dialect)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}{literal}"))
    except SQLAlchemyError:
        if column.name not in {found["name"] for found in sa.inspect(engine).get_columns(table.name)}:
            raise


def set_pragmas(connection: Any, _: Any) -> None:
    """WAL lets readers and one writer work side by side; NORMAL loses at most a power cut's last commits."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def upsert(connection: Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, or replace those of the same primary key: idempotent by that key."""
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    keys = [column.name for column in table.primary_key.columns]
    statement = dialect.insert(table)
    changed = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    merged = (
        statement.on_conflict_do_update(index_elements=keys, set_=changed)
        if changed
        else statement.on_conflict_do_nothing(index_elements=keys)
    )
    # One statement that the driver runs for every row: a text of 500 rows of values takes ten times as long to make.
    connection.execute(merged, [dict(row) for row in rows])
