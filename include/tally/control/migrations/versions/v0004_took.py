"""A stream's row says how long its newest micro-batch took."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"


def upgrade() -> None:
    op.add_column("streams", sa.Column("took", sa.Float, nullable=False, server_default="-1"))
