"""Durations and instants: what is written is what is meant, and what has no fixed meaning is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.base.duration import from_millis, human, iso, parse_duration, parse_instant, spark_interval, to_millis
from tally.base.errors import TallyError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 minutes", 600),
        ("1 minute", 60),
        ("90 s", 90),
        ("1 hour 30 minutes", 5400),
        ("1h30m", 5400),
        ("1h, 30m", 5400),
        ("500 ms", 0.5),
        ("0 seconds", 0),
        ("1.5 hours", 5400),
        ("2 days", 172800),
        ("1 week", 604800),
        (" 5 MINUTES", 300),
        ("5min", 300),
        ("3 mins", 180),
    ],
)
def test_a_duration_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "minutes",
        "-5 minutes",
        "1 month",
        "1 year",
        "ten minutes",
        "5 minutes ago",
        "5 parsecs",
        5,
        None,
        "1e3 s",
        "99999999999999 days",
        pytest.param("9" * 400 + " days", id="endless"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_cure(text: object) -> None:
    with pytest.raises(TallyError) as refused:
        parse_duration(text, field="lateness")  # type: ignore[arg-type]
    assert refused.value.field == "lateness" and refused.value.cure


@pytest.mark.timeout(20)
@pytest.mark.parametrize("char", ["9", " ", "m"])
def test_a_very_long_text_is_refused_at_once_and_not_repeated(char: str) -> None:
    for parse in (parse_duration, parse_instant):
        with pytest.raises(TallyError) as refused:
            parse(char * 100_000)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "9999-12-31", "0001-01-01", "0000-01-01"]
)
def test_a_time_at_the_end_of_all_time_is_refused(text: str) -> None:
    with pytest.raises(TallyError) as refused:
        parse_instant(text, field="--from")
    assert refused.value.field == "--from" and refused.value.cure


@given(st.integers(min_value=0, max_value=10**12))
def test_human_text_reads_back_as_the_same_span(ms: int) -> None:
    span = timedelta(milliseconds=ms)
    assert parse_duration(human(span)) == span
    assert spark_interval(span) == f"{ms} milliseconds"


@given(st.integers(min_value=0, max_value=4 * 10**12))
def test_an_instant_reads_back(ms: int) -> None:
    assert to_millis(from_millis(ms)) == ms
    assert to_millis(parse_instant(iso(from_millis(ms)))) == ms


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-01T10:00:00Z", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01 10:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T10:00:00+02:00", datetime(2026, 11, 1, 8, tzinfo=UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_without_a_zone_is_utc(text: str, moment: datetime) -> None:
    assert parse_instant(text) == moment


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "1767600000000000"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(TallyError, match="is no time"):
        parse_instant(text, field="--from")
