"""The protocol of a kind: what a pipeline of it means in both layers, and in the replay that holds one to the other.

What needs no Spark is asked of the pipeline and its window (catalog/spec.py): the grid of slots, how far the watermark
must pass a window, whether rows are only appended. Times here are milliseconds; a slot is named by its start.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession

from tally.catalog.ranges import Range
from tally.catalog.spec import Pipeline
from tally.control.ledger import MicroBatch
from tally.kinds.clock_windows import ClockWindows
from tally.kinds.frames import called
from tally.sources.archived import Versions

# What Spark compares with the watermark before an event reaches any state: its own time, its window's end, or nothing.
LateRule = Literal["event", "window", "none"]
Numbers = np.ndarray[tuple[int], np.dtype[Any]]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The window starts that are restated, and their rows."""

    ranges: list[Range]
    rows: DataFrame


@dataclass(frozen=True, kw_only=True)
class History:
    """What the ledger tells of a stream up to a cut: its micro-batches in order, and what made an event late."""

    batches: Sequence[MicroBatch]
    late_rule: LateRule


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """A pipeline as its kind takes it."""

    pipeline: Pipeline

    # The frames of both layers.

    @abstractmethod
    def bounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """Bounded frames of events, one a topic, as the function gets them: with `window` on the first."""

    @property
    def clock_windows(self) -> ClockWindows | None:
        """What puts events in windows as `bounded` does, without Spark; None where they do not follow the clock."""
        return None

    @abstractmethod
    def unbounded(self, frames: Sequence[DataFrame]) -> list[DataFrame]:
        """The same of unbounded frames of valid events: with watermarks, each unique id once.

        A frame bears the mark of an event time at one column at most: Spark takes one in what keeps state.
        """

    @abstractmethod
    def streamed(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The function's rows over frames as `unbounded` makes them; where none is late, those that `applied` gives."""

    @abstractmethod
    def flattened(self, out: DataFrame) -> DataFrame:
        """A function's output in the form of every speed and batch row; one that breaks the declaration is refused.

        A filter on `window_start` and `window_end` chooses among its rows, and takes no event from any of them.
        """

    def applied(self, frames: Sequence[DataFrame]) -> DataFrame:
        """The function's rows over bounded frames of events, of which it sees the topics' own columns only."""
        bare = [frame.select(*topic.columns) for frame, topic in zip(frames, self.pipeline.reads, strict=True)]
        return self.flattened(called(self.pipeline, self.bounded(bare)))

    def empty(self, spark: SparkSession) -> list[DataFrame]:
        """What the function gets where there is no event: to see by it what the function does."""
        return self.bounded([spark.createDataFrame([], topic.ddl) for topic in self.pipeline.reads])

    @property
    def row_by_row(self) -> bool:
        """Whether each row is made of one event: no sums, so nothing that could be rounding."""
        return False

    @property
    @abstractmethod
    def longest(self) -> timedelta | None:
        """The longest time that lies between two events of a window; None where there is no such limit."""

    @property
    @abstractmethod
    def alone(self) -> str | None:
        """Why no rows of this kind can be added up from parts of micro-batches, in a clause; None where some can."""

    # A restatement.

    @abstractmethod
    def scope(self, spark: SparkSession, ranges: Sequence[Range], versions: Versions) -> Scope:
        """All rows of the windows that start in the ranges, from the archive as of these versions.

        Whoever replaces all rows that start in the scope's ranges with these cuts no window off.
        """

    @abstractmethod
    def touched(self, spark: SparkSession, starts: Sequence[Range], versions: Versions) -> list[Range]:
        """The starts of all windows that change with events which came to windows that start in the ranges."""

    # The replay.

    def late_rule(self, spark: SparkSession) -> LateRule:
        """What makes an event late in the stream: of one topic, the first thing in its plan that has a watermark."""
        plan = str(called(self.pipeline, self.empty(spark))._jdf.queryExecution().analyzed().toString())
        if self.pipeline.reads[0].unique or "Deduplicate" in plan:
            return "event"
        return "window" if "Aggregate" in plan else "none"

    @property
    def by_event(self) -> bool:
        """Whether a single event tells of which keys' rows it is part, and whether the function leaves it out."""
        return True

    @abstractmethod
    def replay_reads(self, spark: SparkSession, ends: Mapping[int, int], versions: Versions) -> list[list[Range]]:
        """Per topic, the event times to read for a replay of these slots; `ends` has the last end of their windows.

        All events lie in them that either layer may have put into a window of one of these slots.
        """

    @abstractmethod
    def narrowed(self, tagged: DataFrame, keys: DataFrame) -> DataFrame:
        """Events with their fates; where an event need not be followed, for no row of its key differs, `_differs` is
        false. `keys` has those of which one does, as `_key_<name>`.
        """

    @abstractmethod
    def replayed(self, frames: Sequence[DataFrame], history: History) -> list[DataFrame]:
        """The events that the stream accepted, as its function got them: in the windows that they were put into."""

    @abstractmethod
    def with_split(self, tagged: DataFrame, history: History) -> DataFrame:
        """Events with `_split`: whether the stream accepted one into another window than the batch has it in."""

    @abstractmethod
    def over_at(self, time: Column, *, every: bool) -> Column:
        """When (microseconds, as is `time`) all windows are over that an event is in, or, if not `every`, the first."""

    @abstractmethod
    def over_times(self, times: Numbers, *, every: bool) -> Numbers:
        """`over_at` of many times at once, without Spark."""

    @abstractmethod
    def made_of(self, slot: int, end: int) -> list[Range]:
        """Per topic, in whole cells of the grid, the times of all events that have a say in the rows of a slot.

        The last of these rows is over at `end`.
        """

    @abstractmethod
    def causes_from(self, slot: int, end: int) -> range:
        """The slots whose causes are those of a row that starts in this one and is over at `end`."""

    @abstractmethod
    def concerned(self, slots: Iterable[int], differing: Set[int]) -> Set[int]:
        """Of the slots that differ those that an event may be part of whose time lies in windows of these slots."""

    # A proof by random events.

    @abstractmethod
    def sample_times(self, chance: random.Random, start: int, count: int) -> list[list[int]]:
        """Per topic, so many event times (microseconds) from `start` on: on the edges of windows and between them."""
