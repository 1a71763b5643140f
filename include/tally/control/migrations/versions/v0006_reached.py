"""Up to which moment a topic's archive holds all that Kafka held then: batches wait for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0006", "0005"


def upgrade() -> None:
    op.create_table(
        "reached",
        sa.Column("topic", sa.String(249), primary_key=True),
        sa.Column("moment", sa.BigInteger, nullable=False),
    )
