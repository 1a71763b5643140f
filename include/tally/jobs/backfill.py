"""A backfill: planned as a whole, then each chunk restated, compared, judged and sealed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tally.backfill.coverage import coverage
from tally.backfill.plan import Chunk, Plan
from tally.backfill.plan import plan as made
from tally.base.duration import iso
from tally.catalog.load import catalogue

if TYPE_CHECKING:
    from tally.jobs.reconcile import Reconciled


def plan(pipeline: str, since: str, until: str, chunk: str | timedelta) -> Plan:
    """What a backfill of a range would do, and whether archive and Kafka still hold all that it needs."""
    spec = catalogue().pipeline(pipeline)
    return made(spec, since, until, coverage=coverage(spec), chunk=chunk)


def backfill(pipeline: str, chunk: Chunk) -> Reconciled:
    """One chunk restated and reconciled; what came of it."""
    from tally.jobs.batch import batch
    from tally.jobs.reconcile import reconcile

    since, until = iso(chunk.since), iso(chunk.until)
    batch(pipeline, since, until, only=True)
    return reconcile(pipeline, since, until)
