"""One engine for the control store; opening it makes its tables, or brings those of an older version up to date."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import OperationalError, ProgrammingError, SQLAlchemyError

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.control.tables import metadata

# The newest of control/migrations, which a store's tables have; written here so that nothing is imported to know it.
REVISION = "0006"
# As Alembic has it, under a name of its own: Airflow may be in the same database, and has one too.
revisions = sa.Table("tally_revision", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
LOCK = 0x7A11E  # any number: whoever changes the tables of a Postgres holds the lock of it
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
        if revision(engine) != REVISION:
            bring_up_to_date(engine)
    except (SQLAlchemyError, OSError, ImportError) as error:
        raise TallyError(
            f"cannot open the control store: {str(error).splitlines()[0]}",
            field="TALLY_CONTROL" if settings().control else "TALLY_HOME",
            cure="check the URL and its server" if settings().control else "make it a folder that this user can write",
        ) from None
    return engine


def revision(engine: Engine) -> str | None:
    """Which revision of the tables the store has; None where it says none."""
    try:
        with engine.connect() as connection:
            return connection.execute(sa.select(revisions.c.version_num)).scalar()
    except (OperationalError, ProgrammingError):  # no such table; what else it may be, the next statement says
        return None


def bring_up_to_date(engine: Engine) -> None:
    """Make the tables of a new store, or those of an older one what they are now; nothing of its rows is lost."""
    with alone(engine) as connection:
        there = set(sa.inspect(connection).get_table_names())
        known = connection.execute(sa.select(revisions.c.version_num)).scalar() if revisions.name in there else None
        if known is not None and known > REVISION:
            raise TallyError(
                f"the control store is of revision {known}, and this Tally knows {REVISION}",
                field="TALLY_CONTROL" if settings().control else "TALLY_HOME",
                cure="use the newer Tally that has opened it",
            )
        if not there & set(metadata.tables):
            metadata.create_all(connection)
            revisions.create(connection)
            connection.execute(sa.insert(revisions).values(version_num=REVISION))
        elif known != REVISION:
            from tally.control.migrations import upgrade  # 0.2 s of imports, for the few times that it is needed

            upgrade(connection, revisions.name)


@contextmanager
def alone(engine: Engine) -> Iterator[Connection]:
    """A transaction beside which no other process changes the tables: of several that open a store, one does."""
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
        yield connection


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
