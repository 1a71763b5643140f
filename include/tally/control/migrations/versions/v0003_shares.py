"""A topic's micro-batches stand in the ledger once, and not once more for each pipeline that shares its stream.

And a row of the ledger may stand for many of long ago.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"
SHARED = "shared"


def upgrade() -> None:
    op.create_table(
        "shares",
        sa.Column("pipeline", sa.String(128), primary_key=True),
        sa.Column("version", sa.String(32), primary_key=True),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("topic", sa.String(249), nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("delta_version", sa.BigInteger, nullable=False),
        sa.Column("committed_at", sa.BigInteger, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.add_column("ledger", sa.Column("first", sa.BigInteger))
    store = op.get_bind()
    query = "SELECT DISTINCT pipeline, version, generation FROM ledger WHERE ids = 'near' AND version <> :shared"
    for one in store.execute(sa.text(query), {"shared": SHARED}).mappings().all():
        move(store, dict(one))


def move(store: sa.Connection, one: dict[str, Any]) -> None:
    """A pipeline's micro-batches become its topic's, where they are not yet, and one row that says how far it is."""
    mine = "FROM ledger WHERE pipeline = :pipeline AND version = :version AND generation = :generation AND ids = 'near'"
    newest = store.execute(sa.text(f"SELECT * {mine} ORDER BY batch DESC LIMIT 1"), one).mappings().one()
    rows = store.execute(sa.text(f"SELECT sum(rows) {mine}"), one).scalar_one()
    ranges = json.loads(newest["ranges"]) if isinstance(newest["ranges"], str) else newest["ranges"]
    (topic,) = ranges
    share = {
        **one, "topic": topic, "batch": newest["batch"], "rows": int(rows),
        "delta_version": newest["delta_version"], "committed_at": newest["committed_at"],
    }  # fmt: skip
    columns = ", ".join(share)
    values = ", ".join(f":{name}" for name in share)
    store.execute(sa.text(f"INSERT INTO shares ({columns}) VALUES ({values})"), share)
    stream = {**one, "stream": f"topic {topic}", "shared": SHARED}
    known = "SELECT batch FROM ledger WHERE pipeline = :stream AND version = :shared"
    told = "ranges, late_watermark, watermark, 0, -1, committed_at, ids"
    store.execute(
        sa.text(
            "INSERT INTO ledger (pipeline, version, generation, batch, ranges, late_watermark, watermark, rows, "
            f"delta_version, committed_at, ids) SELECT :stream, :shared, 1, batch, {told} {mine} "
            f"AND batch NOT IN ({known})"
        ),
        stream,
    )
    store.execute(sa.text(f"DELETE {mine}"), one)
