"""When the batches of a pipeline are due, and by when they must be over: as it declares, else as the settings say."""

from __future__ import annotations

from datetime import timedelta

from tally.base.settings import settings
from tally.catalog.cron import spread
from tally.catalog.spec import Pipeline


def every(pipeline: Pipeline) -> str:
    """The cron of a pipeline's intervals, UTC."""
    return every_of(pipeline.name, pipeline.every)


def every_of(name: str, declared: str = "") -> str:
    """The same by its name alone, where its definition may be one that does not load."""
    return spread(declared or settings().batch_every, name)


def deadline(pipeline: Pipeline) -> timedelta | None:
    """How long after it was due a batch must be over; None: nothing is promised."""
    return pipeline.deadline or settings().run_deadline
