"""Goes over sealed windows again, whatever their age: table against seal, archive against manifests and seal.

What fails is held, with an incident that says what differs; a restatement and a comparison seal it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tally.base.duration import from_millis, instant, iso, parse_duration
from tally.base.errors import TallyError
from tally.base.failpoints import failpoint
from tally.base.settings import settings
from tally.batch import restate
from tally.catalog.load import catalogue
from tally.catalog.ranges import Range, aligned
from tally.catalog.spec import Pipeline
from tally.control import audits, seals
from tally.control.seals import Seal
from tally.lake import delta, memory
from tally.lake.session import session
from tally.reconcile.audit import checks, doubted, kept

# Slots in one pass of Spark: a digest of each comes back to the driver, some hundred bytes. A month of minutes.
PART = 50_000
START = audits.Place().slot


@dataclass(kw_only=True)
class Audit:
    """What an audit of one pipeline looked at, and what it found."""

    pipeline: str
    version: str
    windows: int = 0  # slots whose rows were held against their seal
    stated_again: int = 0  # of these, slots whose rows were worked out from the archive again
    faults: checks.Faults = field(default_factory=dict)
    not_kept: list[str] = field(default_factory=list)  # topics that hold other numbers of rows than were ingested
    waiting: int = 0  # slots that this or an earlier audit holds

    @property
    def passed(self) -> bool:
        return not self.faults and not self.waiting and not self.not_kept

    def failed(self) -> Iterator[tuple[str, Range]]:
        """What differs, and the ranges of windows in which it does."""
        return doubted.by_fault(self.faults)

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "version": self.version,
            "windows": self.windows,
            "stated_again": self.stated_again,
            "failed": [
                {"from": iso(from_millis(start)), "to": iso(from_millis(end)), "what": fault}
                for fault, (start, end) in self.failed()
            ],
            "held": self.waiting,
            "not_kept": self.not_kept,
            "verdict": "passed" if self.passed else "held",
        }

    def __str__(self) -> str:
        looked = f"{self.windows:,} windows held against their seals, {self.stated_again:,} stated again"
        if self.passed:
            return f"{self.pipeline}: passed: {looked}"
        lines = [f"  {fault}" for fault in self.not_kept]
        lines += [f"  {doubted.shown(wanted)}: {fault}" for fault, wanted in self.failed()]
        return "\n".join([f"{self.pipeline}: held: {looked}; {self.waiting:,} are held", *lines])


@memory.told(memory.BATCH)
def audit(name: str, start: str | None = None, end: str | None = None, *, deep: bool = False) -> Audit:
    """Audit a range of windows, or all: every row against its seal; of all, only the next part is stated again.

    `deep` states all again. A slot that fails is held.
    """
    pipeline = catalogue().pipeline(name)
    if (start is None) != (end is None):
        raise TallyError("half a range", pipeline=name, field="--from/--to", cure="give both, or neither for all")
    if start is None or end is None:
        done = Audit(pipeline=name, version=pipeline.version, not_kept=kept.check(pipeline))
        for known in passes(pipeline, START):
            done = hold_failing(done, pipeline, known, known if deep else [], deep=deep)
        return done if deep else next_part(pipeline, done)
    wanted = aligned((instant(start, "--from"), instant(end, "--to")), pipeline)
    done = Audit(pipeline=name, version=pipeline.version)
    for known in passes(pipeline, *wanted):
        done = hold_failing(done, pipeline, known, known, deep=deep)
    return done


@memory.told(memory.BATCH)
def rolling(name: str) -> Audit:
    """Audit the next part of a pipeline's windows: with one a day, all in the time that the setting gives."""
    pipeline = catalogue().pipeline(name)
    return next_part(
        pipeline, Audit(pipeline=name, version=pipeline.version, not_kept=kept.check(pipeline)), table=True
    )


def next_part(pipeline: Pipeline, done: Audit, *, table: bool = False) -> Audit:
    """State the next part again, and remember where it ended; a part that was cut short is begun again."""
    number, total = (pipeline.name, pipeline.version), seals.counts(pipeline.name, pipeline.version)
    days = max(1, parse_duration(settings().audit_within, field="TALLY_AUDIT_WITHIN") // timedelta(days=1))
    share = -(-sum(total.get(state, 0) for state in seals.VOUCHED) // days)
    known = seals.following(*number, audits.place(*number).slot, share) or seals.following(*number, START, share)
    for at in range(0, len(known), PART):
        some = known[at : at + PART]
        done = hold_failing(done, pipeline, some if table else [], some)
    failpoint("audit.before_place")
    reached = known[-1].slot_end if known else START
    more = seals.following(*number, reached, 1)
    audits.went_on(*number, place=reached if more else START)
    return done


def passes(pipeline: Pipeline, start: int, end: int | None = None) -> Iterator[list[Seal]]:
    """The sealed slots that start in a range, so many at a time as one pass takes."""
    while known := seals.following(pipeline.name, pipeline.version, start, PART, end):
        yield known
        start = known[-1].slot_end


def hold_failing(
    done: Audit, pipeline: Pipeline, table: Sequence[Seal], archive: Sequence[Seal], *, deep: bool = False
) -> Audit:
    """Hold slots against the table, and others against the archive; those that fail are held from here on."""
    found: checks.Faults = {}
    if table or archive:
        spark = session(f"tally-audit-{pipeline.name}", brief=True)
        seen = delta.version(restate.path(pipeline))
        checks.add(found, checks.of_comparisons(table))
        checks.add(found, checks.of_table(spark, pipeline, table, seen))
        checks.add(found, checks.of_manifests(spark, pipeline, archive, deep=deep))
        checks.add(found, checks.of_archive(spark, pipeline, archive))
    held = doubted.hold(pipeline, found)
    done.windows += len(table)
    done.stated_again += len(archive)
    done.faults |= {seal: found[seal] for seal in held}
    done.waiting = len(seals.doubted(pipeline.name, pipeline.version))
    return done
