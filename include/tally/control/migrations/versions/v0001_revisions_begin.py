"""The tables as they were when the store began to know its revision.

A store of before has most of them: it gets those that it lacks, and columns that came later, with their defaults.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, Integer, String, Text

revision, down_revision = "0001", None


def upgrade() -> None:
    there = sa.inspect(op.get_bind())
    known = {table: {column["name"] for column in there.get_columns(table)} for table in there.get_table_names()}
    for table, columns in tables().items():
        if table not in known:
            op.create_table(table, *columns)
        for column in columns if table in known else ():
            if column.name not in known[table]:
                op.add_column(table, column)
    op.create_index("ledger_by_version", "ledger", ["pipeline", "version", "batch"], if_not_exists=True)
    op.create_index("begins_by_pipeline", "begins", ["pipeline", "id"], if_not_exists=True)
    op.create_index("reconciliations_by_pipeline", "reconciliations", ["pipeline", "at"], if_not_exists=True)


def key(name: str, kind: Any) -> Column[Any]:
    return Column(name, kind, primary_key=True)


def must(name: str, kind: Any, default: float | str | None = None) -> Column[Any]:
    """A column that is never null; with a default, rows that are there already get it."""
    given = None if default is None else sa.text(repr(default))
    return Column(name, kind, nullable=False, server_default=given)


def tables() -> dict[str, list[Column[Any]]]:
    return {
        "topics": [
            key("topic", String(249)), must("topic_id", String(64)), must("seen_at", BigInteger),
        ],
        "ledger": [
            key("pipeline", String(128)), key("version", String(32)), key("generation", Integer),
            key("batch", BigInteger), must("ranges", JSON), must("late_watermark", BigInteger),
            must("watermark", BigInteger), must("rows", BigInteger), must("delta_version", BigInteger),
            must("committed_at", BigInteger),
        ],
        "ingests": [
            key("topic", String(249)), key("seq", BigInteger), must("ranges", JSON), must("archived", BigInteger),
            must("quarantined", JSON), must("gaps", BigInteger), must("delta_version", BigInteger),
            must("committed_at", BigInteger),
        ],
        "manifests": [
            key("topic", String(249)), key("place", String(16)), key("era", Integer), key("seq", BigInteger),
            must("baseline", Boolean), must("contract", String(16)), must("delta_version", BigInteger),
            must("from_ms", BigInteger), must("to_ms", BigInteger), must("body", JSON),
        ],
        "seals": [
            key("pipeline", String(128)), key("version", String(32)), key("slot_start", BigInteger),
            must("slot_end", BigInteger), must("state", String(16)), must("revision", Integer),
            must("digest", String(80)), must("rows", BigInteger), must("explained", BigInteger, 0),
            must("fault", Text, ""), must("reconciliation", Integer), must("changed_at", BigInteger),
        ],
        "beginnings": [
            key("topic", String(249)), must("at", BigInteger), must("partitions", JSON),
        ],
        "begins": [
            key("id", Integer), must("pipeline", String(128)), must("from_ms", BigInteger), must("by", String(128)),
            must("why", Text), must("at", BigInteger),
        ],
        "audits": [
            key("pipeline", String(128)), key("version", String(32)), must("place", BigInteger, 0),
            must("seen_version", BigInteger, -1), must("at", BigInteger, 0),
        ],
        "reconciliations": [
            key("id", Integer), must("pipeline", String(128)), must("version", String(32)),
            must("from_ms", BigInteger), must("to_ms", BigInteger), must("at", BigInteger), must("summary", JSON),
            must("slots", JSON), must("verdict", String(16)), must("data_docs", Text, ""),
        ],
        "streams": [
            key("pipeline", String(128)), must("version", String(32)), must("generation", Integer, 0),
            must("app", String(128)), must("state", String(24)), must("reason", Text, ""),
            must("batch", BigInteger, -1), must("watermark", BigInteger, 0), must("newest_window", BigInteger, 0),
            must("freshness", Float, -1.0), must("rows_per_second", Float, 0.0),
            must("progressed_at", BigInteger, 0), must("behind", BigInteger, -1), must("gaining", Float, 0.0),
            must("failures", Integer, 0), must("retry_at", BigInteger, 0), must("restarts", Integer, 0),
            must("updated_at", BigInteger),
        ],
        "drivers": [
            key("app", String(128)), must("host", String(255)), must("pid", Integer), must("created", Float),
            must("launched_at", BigInteger), must("heartbeat_at", BigInteger), must("log", Text, ""),
            must("launcher", String(16), "local"), must("job", Text, ""), must("deaths", Integer, 0),
            must("retry_at", BigInteger, 0), must("last_words", Text, ""),
        ],
        "leases": [
            key("name", String(250)), must("epoch", Integer), must("host", String(255)),
            must("place", String(128), ""), must("pid", Integer), must("created", Float), must("beats", BigInteger),
            must("held", Boolean),
        ],
        "watchers": [
            key("name", String(64)), must("host", String(255)), must("pid", Integer), must("beat_at", BigInteger),
            must("saw", Text, ""),
        ],
        "desired": [
            key("pipeline", String(128)), must("state", String(16)), must("by", String(128)), must("why", Text),
            must("at", BigInteger), must("restarts", Integer, 0),
        ],
        "incidents": [
            key("id", Integer), must("pipeline", String(128)), must("cause", String(64)), must("evidence", Text),
            must("cure", Text, ""), must("done", Text, ""), must("first_seen", BigInteger),
            must("last_seen", BigInteger), must("times", Integer, 1), Column("closed_at", BigInteger),
            must("told_at", BigInteger, 0), must("told_closed_at", BigInteger, 0),
        ],
        "hearers": [
            key("incident", Integer), key("state", String(8)), key("channel", String(250)), must("at", BigInteger),
        ],
    }  # fmt: skip
