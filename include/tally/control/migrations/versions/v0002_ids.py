"""The ledger says how a micro-batch told copies of an id apart; of those that are there, by Spark's own way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"


def upgrade() -> None:
    op.add_column("ledger", sa.Column("ids", sa.String(8), nullable=False, server_default="held"))
