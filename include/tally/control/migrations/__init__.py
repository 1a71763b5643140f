"""The control store's tables, revision by revision: `versions/` has one file for each, which never changes again.

A change of tables.py is one more file here, with a revision after the newest, and that number in store.py.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection


def upgrade(connection: Connection, version_table: str) -> None:
    """Bring a store to the newest revision, in the connection's transaction: all of it, or nothing."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=version_table)
    command.upgrade(config, "head")
