"""The plan of a backfill: on the grid, without gap or overlap, and honest about what is gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.backfill.plan import Coverage, Hole, plan
from tally.base.errors import AnswerIsNo, TallyError
from tally.catalog.declare import hopping, pipeline, session, topic, tumbling
from tally.catalog.spec import Pipeline, Window

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
CLOSED = Coverage(archived=100, closed_to=NOON + timedelta(days=400))

rides = topic("rides", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="10 minutes")
payments = topic("payments", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="10 minutes")


def made(window: Window, *, join: bool = False) -> Pipeline:
    if join:

        @pipeline(reads=[rides, payments], window=window, key="id", reach="30 minutes")
        def trips(rides, payments):  # type: ignore[no-untyped-def]
            return rides
    else:

        @pipeline(reads=rides, window=window, key="id")
        def trips(rides):  # type: ignore[no-untyped-def]
            return rides

    return trips


@given(
    window=st.sampled_from([tumbling("1 minute"), hopping("15 minutes", by="5 minutes"), session("7 minutes")]),
    since=st.integers(0, 5_000),
    length=st.integers(1, 20_000),
    chunk=st.integers(60, 100_000),
)
def test_chunks_cover_the_range_once_on_the_window_grid(window: Window, since: int, length: int, chunk: int) -> None:
    start = NOON + timedelta(seconds=since)
    end = start + timedelta(seconds=length)
    result = plan(made(window), start, end, coverage=CLOSED, chunk=timedelta(seconds=chunk))
    assert result.chunks[0].since == result.since <= start < result.since + window.step
    assert result.chunks[-1].until == result.until >= end > result.until - window.step
    for before, after in zip(result.chunks, result.chunks[1:], strict=False):
        assert before.until == after.since
    for piece in result.chunks:
        assert piece.since < piece.until
        assert (
            piece.since.timestamp() % window.step.total_seconds(),
            piece.until.timestamp() % window.step.total_seconds(),
        ) == (0, 0)
        assert piece.until - piece.since <= max(timedelta(seconds=chunk), window.step)


@pytest.mark.parametrize(
    ("since", "until", "chunk", "field"),
    [
        ("2026-11-01T12:00:00Z", "2026-11-01T12:00:00Z", "1 hour", "from"),
        ("2026-11-01T13:00:00Z", "2026-11-01T12:00:00Z", "1 hour", "from"),
        ("yesterday", "2026-11-01T12:00:00Z", "1 hour", "from"),
        ("2026-11-01T12:00:00Z", "soon", "1 hour", "to"),
        ("2026-11-01T12:00:00Z", "2026-11-02T12:00:00Z", "0 hours", "chunk"),
        ("2026-11-01T12:00:00Z", "2027-11-02T12:00:00Z", "1 hour", "chunk"),
    ],
)
def test_wrong_use_names_the_field(since: str, until: str, chunk: str, field: str) -> None:
    with pytest.raises(TallyError) as refused:
        plan(made(tumbling("1 minute")), since, until, coverage=CLOSED, chunk=chunk)
    assert refused.value.field == field
    assert refused.value.exit_code == 2


def hole(before: datetime | None, topic: str = "rides", said: datetime | None = None) -> Coverage:
    return Coverage(
        holes=(Hole(topic=topic, partition=2, first=0, end=500, before=before),),
        archived=9,
        closed_to=CLOSED.closed_to,
        said=said,
    )


def test_a_range_whose_records_are_gone_cannot_be_run() -> None:
    result = plan(
        made(tumbling("1 minute")), NOON, NOON + timedelta(hours=1), coverage=hole(NOON + timedelta(minutes=1))
    )
    assert not result.possible
    with pytest.raises(AnswerIsNo, match=r"rides, partition 2, offsets \[0, 500\)"):
        result.require()
    assert "it cannot be run" in str(result)


def test_a_hole_before_all_that_a_window_needs_is_only_a_note() -> None:
    result = plan(made(tumbling("1 minute")), NOON, NOON + timedelta(hours=1), coverage=hole(NOON))
    assert result.require() is result
    assert any("[0, 500)" in note for note in result.notes)


def test_a_join_and_a_session_need_events_from_before_their_first_window() -> None:
    for spec, name in ((made(tumbling("1 minute"), join=True), "payments"), (made(session("30 minutes")), "rides")):
        before = NOON - timedelta(minutes=29)
        early = plan(spec, NOON, NOON + timedelta(hours=1), coverage=hole(before, name))
        assert not early.possible
        late = plan(spec, NOON, NOON + timedelta(hours=1), coverage=hole(before - timedelta(minutes=1), name))
        assert late.possible


def test_a_range_from_where_a_person_said_the_numbers_begin_needs_nothing_older() -> None:
    for before in (None, NOON + timedelta(days=1)):
        gone = hole(before, said=NOON)
        assert plan(made(tumbling("1 minute")), NOON, NOON + timedelta(hours=1), coverage=gone).possible
        earlier = plan(
            made(tumbling("1 minute")), NOON - timedelta(minutes=1), NOON + timedelta(hours=1), coverage=gone
        )
        assert not earlier.possible


def test_a_hole_of_unknown_age_is_a_problem() -> None:
    assert not plan(made(tumbling("1 minute")), NOON, NOON + timedelta(hours=1), coverage=hole(None)).possible


def test_open_windows_are_noted() -> None:
    result = plan(made(tumbling("1 minute")), NOON, NOON + timedelta(hours=1), coverage=Coverage(closed_to=NOON))
    assert any("still open" in note for note in result.notes)
    assert result.possible
