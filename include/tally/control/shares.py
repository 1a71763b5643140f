"""How far who shares a topic's stream has come in it: one row for a pipeline's generation, not for a micro-batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from tally.control.store import store
from tally.control.tables import shares

# The generation of a topic's stream: it is never begun anew.
GENERATION = 1


@dataclass(frozen=True, kw_only=True)
class Share:
    """The newest micro-batch of a topic's stream that a pipeline's table holds, and the rows that all of them wrote."""

    pipeline: str
    version: str
    generation: int
    topic: str
    batch: int
    rows: int
    delta_version: int
    committed_at: int
    since: int = 0  # the first micro-batch in which it took part


def stream_of(topic: str) -> tuple[str, str]:
    """The name and version under which the ledger has the micro-batches of a topic's stream."""
    return f"topic {topic}", "shared"


def advance(to: Share) -> None:
    """One more micro-batch, of so many rows, is in a table; one that it is known to hold changes nothing."""
    with store().begin() as connection:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        new = dialect.insert(shares).values(**asdict(to))
        further = {"batch", "delta_version", "committed_at"}
        values = {name: new.excluded[name] for name in further} | {"rows": shares.c.rows + new.excluded.rows}
        keys = [column.name for column in shares.primary_key.columns]
        connection.execute(
            new.on_conflict_do_update(index_elements=keys, set_=values, where=shares.c.batch < new.excluded.batch)
        )


def every(pipeline: str, version: str) -> list[Share]:
    """A pipeline's shares in its topic's stream, the oldest generation's first."""
    mine = (shares.c.pipeline == pipeline) & (shares.c.version == version)
    with store().connect() as connection:
        rows = connection.execute(sa.select(shares).where(mine).order_by(shares.c.generation))
        return [Share(**row._mapping) for row in rows]


def of(pipeline: str, version: str, generation: int | None = None) -> Share | None:
    """The share of a generation, or the newest there is; None where there is none."""
    found = [one for one in every(pipeline, version) if generation in (None, one.generation)]
    return found[-1] if found else None
