"""Whether numbers are sealed in time: what a batch should have sealed by now is sealed, or people are told why not.

It is worked out from the control store alone: whatever stands in the way of a batch or its reconciliation (a paused
DAG, a broken definition, a run that is red, queued or was never made), what was closed when the last batch was due is
not sealed a deadline later. Only the cause is asked of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from croniter import croniter

from tally.base.duration import from_millis, human, instant, iso, millis, parse_duration, to_millis
from tally.base.errors import TallyError
from tally.base.settings import settings
from tally.catalog import schedule
from tally.catalog.load import definitions
from tally.catalog.ranges import closed_starts, floor
from tally.catalog.spec import Pipeline, Topic
from tally.control import incidents, ledger, runs, seals, streams
from tally.control.runs import Reconciliation
from tally.control.store import now_ms
from tally.supervise.send_notices import send_notices
from tally.supervise.watch import is_watched

STOPPED = "sealing has stopped"
# What a task's failure is told as, by whichever scheduler runs it.
BATCH_FAILED, ARCHIVE_FAILED = "batch failed", "archive of {} failed"
LONGEST_CAUSE = 64  # characters that the control store has for it
# Of these it is known what a batch did: a person's comparisons of other ranges may stand before the clock's last one.
LOOK_BACK = 5

# How often a stream's driver looks, where nobody watches over it.
LOOK_SECONDS = 60.0
UNWATCHED = "nobody watches: the streams DAG is paused, or Airflow or its triggerer is down"

# What a scheduler says of the DAGs of a pipeline that keeps them from sealing it; "" where it says nothing.
Ask = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class Debt:
    """What should be sealed by now and is not; times in milliseconds."""

    due: int  # when the batch was due that should have brought it
    owed_to: int  # windows that start before this were closed by then
    judged_to: int  # of which those before this were judged; 0: none
    unsealed: int | None = None  # a window whose seal was taken back before then

    def __str__(self) -> str:
        if self.unsealed is not None:
            return f"the window at {at(self.unsealed)} was unsealed before {at(self.due)} and is not sealed again"
        done = f"only those before {at(self.judged_to)} are judged" if self.judged_to else "none was ever judged"
        return f"windows before {at(self.owed_to)} were closed when the batch of {at(self.due)} was due, and {done}"


def at(ms: int) -> str:
    return iso(from_millis(ms))


def judge_sealing(ask: Ask = lambda _: "") -> list[str]:
    """Open an incident for each pipeline whose sealing has stopped, close it for each other; the names of those."""
    known, stopped = definitions(), []
    for name in known.broken:
        within = settings().run_deadline
        if within is not None and streams.stream(
            name
        ):  # one that never ran owes nothing; `tally check` and `tally status` name it
            said = str(known.broken[name]).splitlines()[0]
            tell(name, "nothing of it is stated or sealed", f"its definition cannot be loaded: {said}", within)
            stopped.append(name)
    for pipeline in known.pipelines.values():
        within = schedule.deadline(pipeline)
        if within is None:
            incidents.close(pipeline.name, STOPPED, done="nothing is promised of it any more")
            continue
        owed = debt(pipeline, within)
        if owed is None:
            incidents.close(pipeline.name, STOPPED, done="all that was due is sealed")
            continue
        tell(pipeline.name, str(owed), why(pipeline, owed) or ask(pipeline.name), within, pipeline.reads)
        stopped.append(pipeline.name)
    there = known.broken.keys() | known.pipelines.keys()  # none at all: a folder that is not there for the moment
    gone = {one.pipeline for one in incidents.opened() if there and one.cause == STOPPED} - there
    for name in sorted(gone):
        incidents.close(name, STOPPED, done="it has no definition any more")
    return stopped


def tell(name: str, owed: str, cause: str, within: timedelta, topics: Sequence[Topic] = ()) -> None:
    """Report it, with what is known of its cause."""
    promise = f"promised: within {human(within)} of the end of each batch interval"
    dags = [*(f"archive__{topic.name}" for topic in topics), f"batch__{name}"]
    cure = (
        f"is Airflow up, {' and '.join(dags)} there, not paused, and the last runs green? "
        f"tally reconcile {name} seals by hand what the batch has stated"
    )
    evidence = f"{owed} ({promise}). Cause: {cause or 'not known from here'}"
    incidents.report(name, STOPPED, evidence, cure=cure)


def debt(pipeline: Pipeline, within: timedelta, now: datetime | None = None) -> Debt | None:
    """What the last batch that was due so long ago should have brought, and nobody sealed; None where it did.

    A stream's own watermark of that time says what was closed, so a quiet topic owes nothing, nor does a new stream.
    """
    due = last_due(schedule.every(pipeline), (now or from_millis(now_ms())) - within)
    newest = ledger.newest(pipeline.name, pipeline.version)
    then = newest and ledger.last_where(newest, lambda batch: batch.committed_at <= due)
    if not then or then.watermark <= 0:
        return None
    settle = parse_duration(settings().settle, field="TALLY_SETTLE")
    owed = closed_starts(pipeline, then.watermark, settle)
    # What is of the interval that had only begun then, its own batch states.
    owed = min(owed, floor(due, millis(pipeline.window.step)))
    judged = seals.judged_to(pipeline.name, pipeline.version)
    if judged < owed:
        judged = covered(pipeline, judged, settle)
    if judged < owed:
        return Debt(due=due, owed_to=owed, judged_to=judged)
    taken_back = seals.unsealed_since(pipeline.name, pipeline.version, owed, due)
    if not taken_back:
        return None
    still = found_open(pipeline, due)
    first = next((slot for slot in taken_back if slot not in still), None)
    return None if first is None else Debt(due=due, owed_to=owed, judged_to=judged, unsealed=first)


def found_open(pipeline: Pipeline, since: int) -> set[int]:
    """The slots that a comparison since an instant found open, such as one whose rows late events made longer."""
    rows = runs.reconciliation_history(pipeline.name, limit=LOOK_BACK)
    mine = [row for row in rows if row.version == pipeline.version and row.at >= since]
    return {int(slot["start"]) for row in mine for slot in row.slots if not slot.get("closed")}


def last_due(cron: str, before: datetime) -> int:
    """The last tick of a cron at an instant or earlier, as milliseconds."""
    tick = croniter(cron, before.astimezone(UTC) + timedelta(microseconds=1)).get_prev(datetime)
    return to_millis(tick)


def covered(pipeline: Pipeline, judged: int, settle: timedelta) -> int:
    """Windows that start before this are judged, or a comparison that ended well found nothing in them to judge."""
    front = judged
    for row in runs.reconciliation_history(pipeline.name, limit=LOOK_BACK):
        if row.version == pipeline.version and ended_well(row, judged):
            mark = instant(row.summary["cut"]["watermark"], "watermark")
            reached = closed_starts(pipeline, mark, settle) if row.from_ms == row.to_ms else row.to_ms
            front = max(front, reached)
    return front


def ended_well(row: Reconciliation, judged: int) -> bool:
    """Whether a comparison had nothing to compare, or was judged and what was closed then is sealed or held."""
    if "cut" not in row.summary or row.verdict == "comparing":
        return False
    if row.from_ms == row.to_ms:
        return True
    closed = [int(slot["end"]) for slot in row.slots if slot.get("closed")]
    return row.verdict in ("reconciled", "held") and max(closed, default=0) <= judged


def why(pipeline: Pipeline, owed: Debt) -> str:
    """The cause as far as the control store knows it; "" where it does not."""
    red = [one for one in incidents.opened(pipeline.name) if one.cause == BATCH_FAILED]
    causes = {ARCHIVE_FAILED.format(topic.name)[:LONGEST_CAUSE] for topic in pipeline.reads}
    red += [one for one in incidents.opened("") if one.cause in causes]
    if red:
        return "; ".join(f"{one.cause}: {one.evidence}" for one in red)
    newest = next(iter(runs.reconciliation_history(pipeline.name, limit=1)), None)
    if newest is not None and newest.at >= owed.due and newest.verdict == "compared" and newest.from_ms < newest.to_ms:
        return f"comparison {newest.id} of {at(newest.at)} was never judged: its judge did not run, or is red"
    return ""


class Lookout:
    """Looks from a stream's driver, which outlives Airflow: where all DAGs are paused, nobody else tells people."""

    def __init__(self) -> None:
        self.looked = time.monotonic()

    def turn(self) -> None:
        """Once a minute, and only where no watcher does; the webhook is told, Airflow's notifiers once it is back."""
        if time.monotonic() - self.looked < LOOK_SECONDS:
            return
        self.looked = time.monotonic()
        if not is_watched():
            judge_sealing(lambda _: UNWATCHED)
            channels = (path.strip() for path in settings().notifiers.split(","))
            send_notices(dict.fromkeys(filter(None, channels), not_from_here))


def not_from_here(_: object) -> None:
    """In place of a notifier of Airflow's: it is still to hear of it."""
    raise TallyError("Airflow's notifiers are told by Airflow", field="TALLY_NOTIFIERS")
