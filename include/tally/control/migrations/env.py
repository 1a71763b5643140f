"""What Alembic runs the revisions with: the connection, and the transaction, of whoever opens the store."""

from alembic import context

given = context.config.attributes
context.configure(connection=given["connection"], version_table=given["version_table"])
context.run_migrations()
