"""The control store: one that an older version made is opened by this one, with what it holds."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import op
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.control import incidents, migrations, streams
from tally.control.store import REVISION, alone, engines, revision, revisions, store
from tally.control.tables import metadata

EARLIER = (Path(__file__).parent / "store_without_revisions.sql").read_text()


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The store of a home that an earlier version wrote, with rows in each table."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    file = tmp_path / "control.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(EARLIER)
    connection.close()
    yield file
    if engine := engines.pop(settings().control_url, None):
        engine.dispose()


def rows(file: Path) -> dict[str, list[dict[str, Any]]]:
    """All that a store holds, by table."""
    connection = sqlite3.connect(file)
    connection.row_factory = sqlite3.Row
    try:
        there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        names = there & set(metadata.tables)
        return {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")] for name in names}
    finally:
        connection.close()


def differences(engine: sa.Engine) -> list[Any]:
    """In what a store's tables are not those that the code knows."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": revisions.name})
        return list(compare_metadata(context, metadata))


def test_a_store_of_an_older_version_gets_the_columns_it_lacks_and_keeps_its_rows(home: Path) -> None:
    number = incidents.report("trips", "stream failed", "no disk")
    streams.want("trips", "paused", by="ada", why="a test")
    with store().begin() as connection:
        connection.execute(sa.text("DROP TABLE tally_revision"))
        connection.execute(sa.text("ALTER TABLE incidents DROP COLUMN done"))
        connection.execute(sa.text("ALTER TABLE incidents DROP COLUMN told_at"))
        connection.execute(sa.text("ALTER TABLE desired DROP COLUMN restarts"))
        connection.execute(sa.text("ALTER TABLE ledger DROP COLUMN ids"))
        connection.execute(sa.text("ALTER TABLE ledger DROP COLUMN first"))
        connection.execute(sa.text("ALTER TABLE streams DROP COLUMN took"))
        connection.execute(sa.text("DROP TABLE shares"))
        connection.execute(sa.text("DROP TABLE reached"))
    engines.pop(str(store().url)).dispose()
    (row,) = incidents.opened("trips")
    assert (row.id, row.evidence, row.done, row.told_at) == (number, "no disk", "", 0)
    assert streams.wanted("trips")["restarts"] == 0
    found = {table: {c["name"] for c in sa.inspect(store()).get_columns(table)} for table in metadata.tables}
    assert found == {name: {c.name for c in table.columns} for name, table in metadata.tables.items()}


def test_a_store_from_before_revisions_loses_nothing(earlier: Path) -> None:
    before = rows(earlier)
    assert all(before.values()), "a table without rows proves nothing"
    assert revision(store()) == REVISION
    after = {name: found for name, found in rows(earlier).items() if name in before}
    assert {name: [{c: row[c] for c in before[name][0]} for row in found] for name, found in after.items()} == before
    (row,) = incidents.opened("vendor_trips")
    assert (row.evidence, row.cure) == ("no disk: 'var' is full", "make room")
    assert streams.wanted("vendor_trips")["state"] == "paused"
    assert differences(store()) == []


def test_a_new_store_and_one_made_revision_by_revision_have_the_tables_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    assert differences(store()) == [] and revision(store()) == REVISION
    engines.pop(settings().control_url).dispose()
    made = sa.create_engine(f"sqlite:///{tmp_path / 'made.db'}")
    with alone(made) as connection:
        migrations.upgrade(connection, revisions.name)
    assert differences(made) == [] and revision(made) == REVISION
    made.dispose()


def test_the_code_knows_the_newest_revision() -> None:
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head() == REVISION


def test_many_that_open_an_older_store_at_once_change_it_once(earlier: Path) -> None:
    script = "from tally.control.store import revision, store; print(revision(store()))"
    racers = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [racer.communicate(timeout=60)[0].strip() for racer in racers] == [REVISION] * 4
    assert differences(store()) == []


def test_many_that_open_a_new_home_at_once_find_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "from tally.control import incidents; print(incidents.report('', 'a race', 'who came first'))"
    env = {**os.environ, "TALLY_HOME": str(tmp_path)}
    racers = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env) for _ in range(4)
    ]
    assert {racer.communicate(timeout=60)[0].strip() for racer in racers} == {"1"}


def test_a_change_that_fails_half_way_changes_nothing(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite3.connect(earlier) as connection:
        connection.execute("ALTER TABLE incidents DROP COLUMN told_at")
        connection.execute("DROP TABLE hearers")
    connection.close()

    def full(*_: object, **__: object) -> None:
        raise sa.exc.OperationalError("CREATE INDEX", {}, sqlite3.OperationalError("disk is full"))

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_index", full)
        with pytest.raises(TallyError, match="disk is full"):
            store()
    connection = sqlite3.connect(earlier)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(incidents)")]
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert "told_at" not in columns and not {"hearers", revisions.name} & there
    assert revision(store()) == REVISION and differences(store()) == []


def test_a_store_of_a_newer_version_is_left_alone(earlier: Path) -> None:
    with store().begin() as connection:
        connection.execute(sa.update(revisions).values(version_num="9999"))
    engines.pop(settings().control_url).dispose()
    with pytest.raises(TallyError, match="of revision 9999") as refused:
        store()
    assert refused.value.field == "TALLY_HOME" and refused.value.cure


def test_a_store_that_is_up_to_date_is_opened_without_alembic(earlier: Path) -> None:
    store()
    script = "import sys; from tally.control.store import store; store(); print('alembic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400, check=True)
    assert done.stdout.strip() == "False"
