"""Crons as pipelines declare them: checked, and of the full hour spread over it. No settings: declaring needs none."""

from __future__ import annotations

from hashlib import sha256

from tally.base.duration import EPOCH
from tally.base.errors import TallyError

# What Airflow's words for common crons mean.
WORDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *", "@yearly": "0 0 1 1 *",
}  # fmt: skip
FIELDS = 5


def spread(cron: str, name: str) -> str:
    """A cron of the full hour, at a minute that follows from the name; any other minute is taken at its word.

    Such a cron ticks once an hour at most. The intervals begin and end at that minute, so they still lie end to end.
    """
    minute, _, rest = WORDS.get(cron.strip(), cron.strip()).partition(" ")
    return f"{minute_of(name) if minute == '0' else minute} {rest}"


def minute_of(name: str) -> int:
    """The same at each start of Python, on each machine."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") % 60


def check_cron(text: object, field: str) -> str:
    """A cron of five fields, or a word for one; whatever else is refused."""
    cure = 'minute, hour, day, month and day of the week in UTC, e.g. "0 * * * *", each full hour'
    if not isinstance(text, str) or not text.strip():
        raise TallyError(f"{text!r} is no cron", field=field, cure=cure)
    cron = WORDS.get(text.strip(), " ".join(text.split()))
    if len(cron.split()) != FIELDS or not comes(cron):
        raise TallyError(f"{text!r} is no cron", field=field, cure=cure)
    return cron


def comes(cron: str) -> bool:
    """Whether there is such a time: the 31st of February is written well, and never comes."""
    from croniter import CroniterError, croniter  # not for each who asks for help

    try:
        return bool(croniter(cron, EPOCH).get_next())
    except CroniterError:
        return False
