"""One pipeline among those that share a topic's stream: what it makes of each micro-batch, and its handle to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StreamingQuery

from tally.base.errors import NotAgain
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.control import shares
from tally.control.ledger import MicroBatch
from tally.kinds import kind_of
from tally.lake.inside_spark import Template
from tally.parts import Function, merged
from tally.speed import checkpoint, commit
from tally.speed.progress import CALM_SECONDS, Motion
from tally.speed.shared.events import Judged
from tally.speed.shared.open_windows import OpenWindows, open_ones

# What a pipeline's runner does after each of its commits.
Applied = Callable[[MicroBatch], None]


class Stream(Protocol):
    """What a member knows of the stream that it takes part in."""

    query: StreamingQuery | None
    motion: Motion | None
    members: list[Member]

    @property
    def over(self) -> bool: ...

    def exception(self) -> Exception | None: ...

    def leave(self, member: Member) -> None: ...


class Member:
    """A pipeline's part in a topic's stream; for whoever watches it, a running query like any other."""

    def __init__(
        self, stream: Stream, target: commit.Target, function: Function, applied: Applied, shape: DataFrame
    ) -> None:
        self.stream, self.target, self.applied = stream, target, applied
        self.split, self.here, self.shape = function.split, function.here, shape
        self.schema = to_arrow_schema(self.split.schema, timezone="UTC")
        self.open = OpenWindows(self.split.groups, self.split.window)
        self.table = DeltaTable(commit.path(target.pipeline))
        self.compiled = False  # its plans over events
        self.error: Exception | None = None
        self.left = False
        # The first micro-batch in which it takes part, once that is known.
        known = shares.of(target.pipeline.name, target.pipeline.version, target.generation)
        self.since = known.since if known is not None else None
        self.began_at = time.monotonic()
        self.entering: threading.Thread | None = None  # while it takes what it missed, beside the others

    # Its plans, made once: over a micro-batch's events, which are of one shape, and over totals.

    @cached_property
    def taking(self) -> Template:
        (given,) = kind_of(self.pipeline).bounded([self.shape])
        return Template.of(self.split.parts(given), self.shape)

    @cached_property
    def taking_few(self) -> Template:
        """The same over few events: by an Expand Spark forgets that they are one partition, and exchanges them."""
        if "Expand" not in self.taking.nodes:
            return self.taking
        (given,) = kind_of(self.pipeline).bounded([self.shape])
        return Template.of(self.split.parts(given.coalesce(1)), self.shape)

    @cached_property
    def finishing(self) -> Template:
        return Template.of(self.here.finished, self.here.none)

    @property
    def pipeline(self) -> Pipeline:
        return self.target.pipeline

    @property
    def place(self) -> tuple[str, str]:
        return self.target.place

    # What a micro-batch comes to.

    def totals(self, found: Judged, late_watermark: int, session: Callable[[], SparkSession]) -> pa.Table:
        """The groups that the events of a micro-batch change, with all that is in them now; late ones change none.

        The session is asked for where something is Spark's to make.
        """
        new = self.parts_here(found)
        if new is None:
            taking = self.taking_few if found.small else self.taking
            new = self.gathered(taking.on(found.frame(), session()))
        return self.with_held(open_ones(new, self.open.window, late_watermark), session)

    def parts_here(self, found: Judged) -> pa.Table | None:
        """The parts of a micro-batch's events without Spark; None where they are Spark's to make."""
        if self.here.taking is None:
            return None
        if (pieces := found.parts.get(self.place)) is not None:
            made = self.here.taking.together(pieces) if pieces else self.schema.empty_table()
        else:
            made = self.here.taking.over(found.events) if found.events is not None else None
        return None if made is None else made.cast(self.schema)

    def totals_of(self, frame: DataFrame) -> pa.Table:
        """The same of a frame as the function gets it, which has no late events."""
        return self.with_held(self.gathered(self.split.parts(frame)), lambda: frame.sparkSession)

    def with_held(self, new: pa.Table, session: Callable[[], SparkSession]) -> pa.Table:
        """Parts of some groups, and what these held before, added up."""
        held = self.open.of(new)
        if self.split.mergeable:
            return merged(held, new, self.split.buffers)
        there = held.filter(pc.is_valid(held[self.open.window]))
        both = self.frame(session(), pa.concat_tables([new, there]))
        return self.gathered(self.split.added(both))

    def gathered(self, parts: DataFrame) -> pa.Table:
        """Parts in this process, under the one schema that all of the pipeline's have."""
        return parts.toArrow().cast(self.schema)

    def frame(self, spark: SparkSession, totals: pa.Table) -> DataFrame:
        """Totals as Spark has them; of a table without rows and chunks it makes no frame."""
        return spark.createDataFrame(totals if totals.num_rows else [], self.split.schema)

    def take(self, spark: SparkSession, totals: pa.Table, plan: checkpoint.Planned, watermark: int) -> None:
        """Hold these totals, and append the rows of their groups to the pipeline's table."""
        rows = self.here.finishing.over(totals) if self.here.finishing is not None else None
        if rows is None:
            rows = self.finishing.on(self.finishing.leaf(self.frame(spark, totals)), spark).toArrow()
        self.applied(commit.append_arrow(rows, replace(plan, since=self.since or 0), self.target, self.table))
        self.open.put(totals)
        self.open.close(watermark)
        self.check_size()

    def restore(self, totals: Iterable[pa.Table], watermark: int) -> None:
        """Begin with the totals that the inbox has, oldest first."""
        self.open.restore(totals, watermark)
        self.check_size()

    def check_size(self) -> None:
        """End its part in the stream before the driver's memory is full: what it holds is too much, or most of it."""
        mine, others = len(self.open), [len(one.open) for one in self.stream.members if one is not self]
        most, in_all = settings().open_groups, settings().open_groups_in_all
        if mine > most:
            raise self.too_large("TALLY_OPEN_GROUPS", f"more than the {most:,} that a pipeline may have")
        if mine + sum(others) > in_all and mine >= max(others, default=0):
            whole = f"the most of the {mine + sum(others):,} of all pipelines of the topic, which may have {in_all:,}"
            raise self.too_large("TALLY_OPEN_GROUPS_IN_ALL", whole)

    def too_large(self, field: str, than: str) -> NotAgain:
        name, where = self.pipeline.name, "where there is memory for some 500 bytes a group"
        return NotAgain(
            f"its open windows hold {len(self.open):,} groups, {than} in the driver's memory where it shares its "
            "topic's stream",
            pipeline=name,
            field=field,
            cure=f"tally stop {name}, tally rebuild {name} --path own, tally resume {name}: its next generation "
            f"has a query of its own; or, {where}, a higher {field}, and tally restart {name}",
        )

    # What a runner asks a query.

    @property
    def isActive(self) -> bool:
        return self.error is None and not self.left and not self.stream.over

    def exception(self) -> Exception | None:
        return self.error or (None if self.left else self.stream.exception())

    @property
    def waits(self) -> bool:
        """Whether it has all that there is to read."""
        return self.entering is None and self.stream.motion is not None and self.stream.motion.waits

    @property
    def stuck(self) -> bool:
        return self.entering is None and self.stream.motion is not None and self.stream.motion.stuck

    @property
    def calm(self) -> bool:
        return self.waits and time.monotonic() - self.began_at > CALM_SECONDS

    @property
    def status(self) -> dict[str, Any]:
        if self.entering is not None:
            return {"isTriggerActive": False, "isDataAvailable": True, "message": "takes what it missed"}
        if self.stream.query is None:
            return {"isTriggerActive": False, "isDataAvailable": True, "message": "about to begin"}
        return dict(self.stream.query.status)

    def stop(self) -> None:
        """Leave the stream, between two micro-batches; the others go on."""
        self.stream.leave(self)
