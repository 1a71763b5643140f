"""Durations as people write them ("10 minutes"), and nothing that depends on a calendar or a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tally.base.errors import TallyError
from tally.base.safe_text import quoted

UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0}
SHORT = {"ms": "millisecond", "s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week"}
PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|[a-z]+?)s?(?=\s|\d|$|,)\s*,?", re.IGNORECASE)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Characters. No time and no duration that a person writes is longer, and PART is quadratic in what it does not match.
LONGEST = 100
# Room on both sides for a window, a reach or a chunk around an instant; Python's and Spark's time both end at these.
FIRST_YEAR, LAST_YEAR = 2, 9998


def parse_duration(text: str | timedelta, *, field: str = "duration") -> timedelta:
    """A positive or zero span of fixed length; months and years are refused, they have none."""
    if isinstance(text, timedelta):
        return text
    if not isinstance(text, str):
        raise TallyError(f"{text!r} is no duration", field=field, cure='write it like "10 minutes"')
    seconds, at = 0.0, 0
    for match in PART.finditer(text) if len(text) <= LONGEST else ():
        unit = match[2].lower() if match[2].lower() in SHORT else match[2].lower().rstrip("s")
        unit = SHORT.get(unit, unit)
        if match.start() != at or unit not in UNITS:
            break
        seconds, at = seconds + float(match[1]) * UNITS[unit], match.end()
    if at == 0 or at != len(text):
        raise TallyError(
            f"{quoted(text)} is no duration", field=field, cure='write it like "10 minutes" or "1 hour 30 minutes"'
        )
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise TallyError(
            f"{text!r} is longer than all of time", field=field, cure='write it like "10 minutes"'
        ) from None


def millis(span: timedelta) -> int:
    """Whole milliseconds of a span."""
    return span // timedelta(milliseconds=1)


def spark_interval(span: timedelta) -> str:
    """The span as Spark's interval text."""
    return f"{millis(span)} milliseconds"


def human(span: timedelta) -> str:
    """The shortest exact text, e.g. "15 minutes"."""
    left = millis(span)
    for unit in ("week", "day", "hour", "minute", "second"):
        size = int(UNITS[unit] * 1000)
        if left and left % size == 0 and (unit not in ("week",) or left >= size):
            count = left // size
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{left} milliseconds"


def parse_instant(text: str | datetime, *, field: str = "time") -> datetime:
    """An instant in UTC; text without a zone is UTC, and anything that is no ISO 8601 time is refused."""
    if isinstance(text, datetime):
        return text.replace(tzinfo=UTC) if text.tzinfo is None else text.astimezone(UTC)
    try:
        moment = parse_instant(datetime.fromisoformat(str(text).strip()))
    except (ValueError, OverflowError):  # the latter: no time in UTC, as midnight of the first day east of it
        raise TallyError(
            f"{quoted(str(text))} is no time", field=field, cure="write it as ISO 8601, e.g. 2026-11-01T10:00:00Z"
        ) from None
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise TallyError(
            f"{iso(moment)} is outside the years {FIRST_YEAR} to {LAST_YEAR}", field=field, cure="correct the year"
        )
    return moment


def to_millis(moment: datetime) -> int:
    """Milliseconds since the epoch of an aware instant."""
    return (parse_instant(moment) - EPOCH) // timedelta(milliseconds=1)


def from_millis(ms: int) -> datetime:
    """The UTC instant of milliseconds since the epoch."""
    return EPOCH + timedelta(milliseconds=ms)


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC with a Z, without a fraction where there is none."""
    text = parse_instant(moment).isoformat(timespec="milliseconds" if moment.microsecond else "seconds")
    return text.replace("+00:00", "Z")


def instant(text: str, field: str) -> int:
    """An instant as milliseconds."""
    return to_millis(parse_instant(text, field=field))
