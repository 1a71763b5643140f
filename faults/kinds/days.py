"""Event time crosses a change of the clocks, where driver, supervisor and batch stand in the time zone that changes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from faults.kinds.kills import kill_all, kill_jvm, kill_python
from faults.run import Fault, Run
from faults.truth import MINUTE

# Event time before the change in which a campaign begins: a start of the driver on a busy machine, and a UTC midnight.
AHEAD = timedelta(minutes=150)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of the clocks, and where it happens."""

    zone: str
    at: datetime

    @property
    def begins(self) -> datetime:
        return self.at - AHEAD

    @property
    def fault(self) -> Fault:
        return lambda run: crossed(run, int(self.at.timestamp() * 1000))


# The last ones of each zone that lie behind; at all of them the events of an hour have the local time of another hour,
# or of none.
BERLIN_AUTUMN = Change(zone="Europe/Berlin", at=datetime(2026, 10, 25, 1, tzinfo=UTC))
BERLIN_SPRING = Change(zone="Europe/Berlin", at=datetime(2026, 3, 29, 1, tzinfo=UTC))
NEW_YORK_AUTUMN = Change(zone="America/New_York", at=datetime(2026, 11, 1, 6, tzinfo=UTC))


def crossed(run: Run, change: int) -> None:
    """The driver dies before, at and after the change; then what there is gets sealed, and goes on, and dies again."""
    for minutes, kill in ((-40, kill_python), (0, kill_all), (30, kill_jvm), (75, kill_all)):
        wait_for(run, change + minutes * MINUTE)
        kill(run.stack)
        run.heals(f"killed {minutes:+} minutes from the change", time.monotonic())
        run.one_writer()
    run.stack.settle(run.span())  # seals the day of the change: the driver trims what is older
    late(run, change)
    time.sleep(5)
    kill_all(run.stack)
    run.heals("killed once the change is sealed", time.monotonic())
    run.one_writer()


def late(run: Run, change: int) -> None:
    """Events for each quarter of an hour around the change, hours after it."""
    for topic in ("faults.orders", "faults.readings"):
        for quarter in range(-16, 17):
            with run.sender.guard:
                body = run.sender.made(change + quarter * 15 * MINUTE + run.rng.randrange(MINUTE))
                run.sender.event(topic, run.rng.randrange(2), body, kind="hours late")


def wait_for(run: Run, moment: int) -> None:
    """Until event time has reached a moment."""
    while run.sender.reached < moment:
        time.sleep(0.1)
