"""How often a stream failed since it last went on, what that means, and when it is tried again."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from tally.base.errors import AnswerIsNo, DataLost, DefinitionError, NotAgain, TallyError
from tally.catalog.spec import Pipeline
from tally.control import incidents, streams
from tally.control.store import now_ms
from tally.host.waiting import backoff
from tally.speed.refusal import with_name

log = logging.getLogger(__name__)
# A try costs a start of a query, a second or two of both cores: a minute between tries is little, and heals soon.
FIRST_BACKOFF, MOST_BACKOFF = 2.0, 60.0
# What Tally itself refuses does not pass by itself: a torn file may have been half written, hence not the first time.
REFUSALS = 3
FAULTS = ("stream failed", "stream refused", "data lost")


@dataclass(frozen=True, kw_only=True)
class Setback:
    """One failure: what it was of, whether it passes by itself, and how many seconds to wait for the next try."""

    error: TallyError
    failures: int
    lost: bool
    refused: bool
    gave_up: bool
    wait: float

    @property
    def reason(self) -> str:
        return str(self.error).split("\n")[0]

    @property
    def state(self) -> str:
        """The stream's state in the control store."""
        return "data_lost" if self.lost else "gave_up" if self.gave_up else "failed"

    @property
    def cause(self) -> str:
        """The incident's: one of FAULTS."""
        return "data lost" if self.lost else "stream refused" if self.refused else "stream failed"


class Tries:
    """The failures in a row of one stream; the control store keeps them, so the next driver goes on counting."""

    def __init__(self, pipeline: Pipeline) -> None:
        known = streams.stream(pipeline.name) or {}
        mine = known.get("version") == pipeline.version
        self.failures = int(known["failures"]) if mine else 0  # what failed under the last driver may fail here too
        wait = (int(known["retry_at"]) - now_ms()) / 1000 if mine and self.failures else 0.0
        self.retry_at = time.monotonic() + min(max(0.0, wait), MOST_BACKOFF)

    @property
    def due(self) -> bool:
        """Whether it is time for the next try."""
        return time.monotonic() >= self.retry_at

    def put_off(self) -> None:
        """Try again later without counting a failure: another has the table."""
        self.retry_at = time.monotonic() + MOST_BACKOFF

    def forget(self) -> None:
        """Begin to count anew, and try at once."""
        self.failures, self.retry_at = 0, 0.0

    def count(self, error: TallyError) -> Setback:
        """Count a failure; what does not pass by itself is given up."""
        self.failures += 1
        lost = isinstance(error, DataLost)
        refused = isinstance(error, AnswerIsNo | DefinitionError) and not lost
        wait = backoff(self.failures, FIRST_BACKOFF, MOST_BACKOFF)
        self.retry_at = time.monotonic() + wait
        return Setback(
            error=error,
            failures=self.failures,
            lost=lost,
            refused=refused,
            gave_up=lost or isinstance(error, NotAgain) or (refused and self.failures >= REFUSALS),
            wait=wait,
        )


def report(pipeline: Pipeline, setback: Setback, *, app: str, over: bool) -> None:
    """Say what went wrong: the stream's row, an incident, a line of the log. `over`: it is not tried again."""
    streams.show(
        pipeline.name, state=setback.state, reason=setback.reason, app=app, failures=setback.failures,
        retry_at=now_ms() + int(setback.wait * 1000),
    )  # fmt: skip
    after = "it stays stopped" if over else f"next try in {setback.wait:.0f} s, from where it stopped"
    incidents.report(pipeline.name, setback.cause, setback.reason, cure=setback.error.cure or "", done=after)
    log.error("%s\n  %s", with_name(setback.error, pipeline), after, extra={"pipeline": pipeline.name})
