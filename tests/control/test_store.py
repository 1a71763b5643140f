"""The control store: one that an older version made is opened by this one, with what it holds."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from tally.control import incidents, streams
from tally.control.store import engines, store
from tally.control.tables import metadata


def test_a_store_of_an_older_version_gets_the_columns_it_lacks_and_keeps_its_rows(home: Path) -> None:
    number = incidents.report("trips", "stream failed", "no disk")
    streams.want("trips", "paused", by="ada", why="a test")
    with store().begin() as connection:
        connection.execute(sa.text("ALTER TABLE incidents DROP COLUMN done"))
        connection.execute(sa.text("ALTER TABLE incidents DROP COLUMN told_at"))
        connection.execute(sa.text("ALTER TABLE desired DROP COLUMN restarts"))
    engines.pop(str(store().url)).dispose()
    (row,) = incidents.opened("trips")
    assert (row["id"], row["evidence"], row["done"], row["told_at"]) == (number, "no disk", "", 0)
    assert streams.wanted("trips")["restarts"] == 0
    found = {table: {c["name"] for c in sa.inspect(store()).get_columns(table)} for table in metadata.tables}
    assert found == {name: {c.name for c in table.columns} for name, table in metadata.tables.items()}
