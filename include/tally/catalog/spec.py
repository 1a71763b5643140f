"""The declared things as frozen values: a topic, a window, a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from tally.base.duration import human, millis
from tally.base.errors import TallyError
from tally.catalog.schema import Field


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A Kafka topic with a schema, an event time, a lateness and, if events carry one, a unique id."""

    name: str
    schema: tuple[Field, ...]
    event_time: str
    lateness: timedelta
    unique: str | None = None
    partitions: int = 4

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema)

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{column.name}` {column.type}" for column in self.schema)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A rule that puts an event into half-open UTC windows: one of the four below."""

    word: ClassVar[str]  # by which definitions and their fingerprints know it
    by_key: ClassVar[bool] = False  # whether the events of each key say where its windows begin and end
    append_only: ClassVar[bool] = False  # whether Spark emits a row only once, when its window is over

    size: timedelta  # how long a window is; of sessions, one of a single event

    @property
    def step(self) -> timedelta:
        """The grid on which windows are sealed."""
        return self.size

    @property
    def gap(self) -> timedelta:
        """How far outside of a window an event may lie that still changes it."""
        return timedelta(0)

    def __str__(self) -> str:
        return f"{self.word} {human(self.size)}"


@dataclass(frozen=True, kw_only=True)
class Tumbling(Window):
    """Windows of one size, end to end."""

    word = "tumbling"


@dataclass(frozen=True, kw_only=True)
class Hopping(Window):
    """Windows of one size, a new one every `slide`."""

    word = "hopping"

    slide: timedelta

    @property
    def step(self) -> timedelta:
        return self.slide

    def __str__(self) -> str:
        return f"{self.word} {human(self.size)} by {human(self.slide)}"


@dataclass(frozen=True, kw_only=True)
class Session(Window):
    """Windows of one key's activity that end when nothing came for `size`, the gap."""

    word = "session"
    by_key = True
    append_only = True

    @property
    def gap(self) -> timedelta:
        return self.size

    def __str__(self) -> str:
        return f"{self.word}, gap {human(self.size)}"


@dataclass(frozen=True, kw_only=True)
class Events(Window):
    """Slots of one size, end to end, in which the rows of single events are sealed."""

    word = "events"


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One function, DataFrames in, DataFrame out, that both layers run unchanged; `version` is its meaning."""

    name: str
    reads: tuple[Topic, ...]
    window: Window
    key: tuple[str, ...]
    reach: timedelta | None
    function: Callable[..., Any] = field(compare=False)
    file: str
    line: int
    doc: str
    version: str = ""
    owner: str = "tally"
    every: str = ""  # cron of its batches; empty: as the settings say
    deadline: timedelta | None = None  # how long after it was due a batch must be over; None: as the settings say
    team: str = ""
    tier: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def append_only(self) -> bool:
        """Whether Spark emits a row of this pipeline only once, when its window is over."""
        return self.window.append_only

    @property
    def linger(self) -> timedelta:
        """How far the watermark must pass a window's end before no accepted event can change the window any more."""
        return self.window.gap + self.stretch

    @property
    def stretch(self) -> timedelta:
        """How far from an event of the first topic those may lie that it is joined with: topics may join in a chain."""
        return (self.reach or timedelta(0)) * len(self.reads[1:])

    def slot(self, start_ms: int) -> int:
        """The start of the seal grid's cell that a window starting at `start_ms` belongs to."""
        step = millis(self.window.step)
        return start_ms - start_ms % step

    def __call__(self, *frames: Any) -> Any:
        return self.function(*frames)


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """Everything that one folder of definitions declares, and what is wrong with the files that declare nothing."""

    path: str
    topics: dict[str, Topic]
    pipelines: dict[str, Pipeline]
    broken: dict[str, TallyError] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """What a form offers: the pipelines that load; where none does, all, for each says why."""
        return sorted(self.pipelines or self.broken)

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name; a broken one is refused by its fault, an unknown one with the names there are."""
        if name in self.broken:
            raise self.broken[name]
        if name not in self.pipelines:
            raise TallyError(
                "no such pipeline",
                pipeline=name,
                cure=f"one of: {', '.join(sorted(self.pipelines)) or 'none is defined'} (in {self.path})",
            )
        return self.pipelines[name]

    def topic(self, name: str) -> Topic:
        """The topic of that name; an unknown one is refused with the names there are."""
        if name not in self.topics:
            raise TallyError(
                "no such topic",
                field=name,
                cure=f"one of: {', '.join(sorted(self.topics)) or 'none is defined'} (in {self.path})",
            )
        return self.topics[name]

    def readers(self, topic: str) -> list[Pipeline]:
        return [p for p in self.pipelines.values() if any(t.name == topic for t in p.reads)]
