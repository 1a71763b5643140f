"""Each generation that shares its topic's stream has a row: the one in between may have a query of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0005", "0004"


def upgrade() -> None:
    store = op.get_bind()
    known = [dict(row) for row in store.execute(sa.text("SELECT * FROM shares")).mappings()]
    op.drop_table("shares")  # no database changes a primary key in the same way as the others
    shares = op.create_table(
        "shares",
        sa.Column("pipeline", sa.String(128), primary_key=True),
        sa.Column("version", sa.String(32), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("topic", sa.String(249), nullable=False),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("delta_version", sa.BigInteger, nullable=False),
        sa.Column("committed_at", sa.BigInteger, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.bulk_insert(shares, known)
