"""What is to be told: each opening and each end, once for every channel, and history to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from tally.control import incidents, notices
from tally.control.store import store
from tally.control.tables import hearers
from tally.control.tables import incidents as table


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)


def told() -> list[tuple[int, incidents.State]]:
    """Tell all there is, and say what it was."""
    news = [(item.incident.id, item.incident.state) for item in notices.untold()]
    for number, state in news:
        notices.told(number, state)
    return news


def test_an_opening_and_its_end_are_each_told_once_however_often_it_is_seen() -> None:
    number = incidents.report("trips", "stream failed", "no disk")
    assert told() == [(number, "open")]
    incidents.report("trips", "stream failed", "still no disk")
    assert told() == []
    incidents.close("trips", "stream failed")
    assert told() == [(number, "closed")]
    assert told() == []


def test_the_same_cause_again_is_another_incident() -> None:
    first = incidents.report("trips", "stream failed", "no disk")
    assert told() == [(first, "open")]
    incidents.close("trips", "stream failed")
    second = incidents.report("trips", "stream failed", "no disk")
    assert told() == [(first, "closed"), (second, "open")]


def test_what_was_over_before_anybody_was_told_is_told_as_closed_alone() -> None:
    number = incidents.report("trips", "offsets log", "cut short")
    incidents.close("trips", "offsets log", done="put aside")
    assert told() == [(number, "closed")]
    assert told() == []


def test_a_store_that_gets_its_first_webhook_sends_no_history() -> None:
    incidents.report("trips", "stream failed", "long ago")
    incidents.close("trips", "stream failed")
    with store().begin() as connection:
        connection.execute(sa.update(table).values(closed_at=table.c.closed_at - notices.STILL_NEWS_MS - 1000))
    assert notices.untold() == []
    still = incidents.report("trips", "data lost", "long ago, and not over")
    assert told() == [(still, "open")]


def test_an_end_is_told_however_late_where_the_opening_was() -> None:
    number = incidents.report("trips", "stream failed", "no disk")
    assert told() == [(number, "open")]
    incidents.close("trips", "stream failed")
    with store().begin() as connection:
        connection.execute(sa.update(table).values(closed_at=table.c.closed_at - 10 * notices.STILL_NEWS_MS))
    assert told() == [(number, "closed")]


def test_a_channel_that_has_heard_of_the_opening_has_not_heard_of_the_end() -> None:
    number = incidents.report("trips", "stream failed", "no disk")
    notices.heard(number, "open", "webhook")
    notices.heard(number, "open", "webhook")
    (item,) = notices.untold()
    assert item.heard == {"webhook"}
    incidents.close("trips", "stream failed")
    (item,) = notices.untold()
    assert (item.incident.state, item.heard) == ("closed", frozenset())
    assert told() == [(number, "closed")]


def test_who_has_heard_is_forgotten_once_all_have() -> None:
    number = incidents.report("trips", "stream failed", "no disk")
    notices.heard(number, "open", "webhook")
    assert told() == [(number, "open")]
    with store().connect() as connection:
        assert connection.execute(sa.select(hearers)).all() == []
