"""What people were not told of yet: incidents that opened or ended since, each until every channel has heard of it.

Telling is at least once: who sends says so afterwards. A receiver knows a repetition by the incident's id and state.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from tally.control.incidents import Incident, State, found
from tally.control.store import now_ms, store, upsert
from tally.control.tables import hearers, incidents

# An incident that was over before anybody was told is still worth a word for so long. Older ones are history: a store
# that gets its first webhook would else send all of it.
STILL_NEWS_MS = 24 * 3_600_000


@dataclass(frozen=True, kw_only=True)
class News:
    """One incident that opened, or ended, and the channels that have heard so."""

    incident: Incident
    heard: frozenset[str]


def untold() -> list[News]:
    """What is to be told, in the order in which it began; one that ended before it was told is told once, as closed."""
    is_open, told = incidents.c.closed_at.is_(None), incidents.c.told_at > 0
    opened = is_open & ~told
    recent = incidents.c.closed_at > now_ms() - STILL_NEWS_MS
    ended = ~is_open & (incidents.c.told_closed_at == 0) & (told | recent)
    with store().connect() as connection:
        known = {(row.incident, row.state, row.channel) for row in connection.execute(sa.select(hearers))}
    news = []
    for incident in found(opened | ended, None):
        mine = incident.id, incident.state
        ears = frozenset(channel for number, word, channel in known if (number, word) == mine)
        news.append(News(incident=incident, heard=ears))
    return news


def heard(incident: int, state: State, channel: str) -> None:
    """Say that a channel took it, while others have not; idempotent by all three."""
    row = {"incident": incident, "state": state, "channel": channel[:250], "at": now_ms()}
    with store().begin() as connection:
        upsert(connection, hearers, [row])


def told(incident: int, state: State) -> None:
    """Say that every channel has heard; idempotent by both. Who has heard of the end needs no word of the beginning."""
    columns = {"told_at": now_ms()} if state == "open" else {"told_at": now_ms(), "told_closed_at": now_ms()}
    with store().begin() as connection:
        connection.execute(sa.update(incidents).where(incidents.c.id == incident).values(**columns))
        # Only of this state: the incident may have ended meanwhile, and some may have heard that already.
        mine = (hearers.c.incident == incident) & (hearers.c.state == state)
        connection.execute(sa.delete(hearers).where(mine))
