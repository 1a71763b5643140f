"""The valid events of a topic's micro-batch, as frames or in this process: what was seen, what has which id."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tally.catalog.spec import Topic
from tally.speed.shared.clock import Seen
from tally.speed.shared.spans import Span, numbers

PLACE = ("_partition", "_offset")
# Up to so many offsets a micro-batch is one partition: what each pipeline makes of it takes one task, and no exchange.
SMALL = 20_000
Made = TypeVar("Made")
# Of a pipeline: its name and version.
Owner = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The events that the stream takes, what was seen of all, and the ids among them that are to be remembered."""

    offsets: int
    seen: dict[int, Seen]
    frame: Callable[[], Any]  # the leaf of all plans over these events: of the reading's `shape`
    events: pa.Table | None = None  # where they are in this process
    parts: Mapping[Owner, Sequence[pa.Table]] = field(default_factory=dict)  # in pieces, made as they were read
    brought: pa.Table | None = None

    @property
    def small(self) -> bool:
        return are_few(self.offsets)


def offsets(ranges: Mapping[int, tuple[int, int]]) -> int:
    """How many offsets lie in these ranges."""
    return sum(to - start for start, to in ranges.values())


def are_few(count: int) -> bool:
    """Whether so many events are small work: for this process, or for one task."""
    return count <= SMALL


def once(make: Callable[[], Made]) -> Callable[[], Made]:
    """What is made when it is first asked for, by whoever asks."""
    guard, found = Lock(), list[Made]()

    def asked() -> Made:
        with guard:
            if not found:
                found.append(make())
            return found[0]

    return asked


def seen(events: DataFrame, topic: Topic) -> dict[int, Seen]:
    """The newest event time, the newest and the oldest broker time among the events of each partition that has one."""
    arrived = F.unix_millis("_broker_time")
    times = F.max(F.unix_millis(topic.event_time)), F.max(arrived), F.min(arrived)
    rows = events.groupBy("_partition").agg(*times).collect()
    return {row[0]: Seen(event=row[1], record=row[2], first=row[3]) for row in rows}


def newest_times(events: pa.Table, time: str) -> pa.Table:
    """The same of events in this process, as rows of `partition`, `event`, `record` and `first`."""
    record = in_millis(events["_broker_time"])
    columns = {"event": in_millis(events[time]), "record": record, "first": record}
    return newest_of(pa.table({"partition": events["_partition"], **columns}))


def newest_of(times: pa.Table) -> pa.Table:
    """One of several such rows of each partition."""
    asked = [("event", "max"), ("record", "max"), ("first", "min")]
    found = times.group_by("partition", use_threads=False).aggregate(asked)
    return found.select(["partition", "event_max", "record_max", "first_min"]).rename_columns(times.column_names)


def as_seen(times: pa.Table) -> dict[int, Seen]:
    """Such rows as a clock takes them."""
    return {row.pop("partition"): Seen(**row) for row in times.to_pylist()}


def in_millis(times: pa.ChunkedArray) -> pa.Array:
    """Times as Spark's unix_millis has them: those before 1970 are rounded down, too."""
    return pa.array(times.cast(pa.int64()).to_numpy() // 1000, pa.int64())


def identified(events: DataFrame, topic: Topic) -> pa.Table:
    """What tells events apart: their place, `_id`, `_time` (microseconds) and `_arrived` (milliseconds)."""
    assert topic.unique
    return events.select(
        *PLACE,
        F.col(topic.unique).alias("_id"),
        F.unix_micros(topic.event_time).alias("_time"),
        F.unix_millis("_broker_time").alias("_arrived"),
    ).toArrow()


def identified_here(events: pa.Table, unique: str, time: str) -> pa.Table:
    """The same of events in this process, but for when they arrived."""
    places = {name: events[name] for name in PLACE}
    return pa.table({**places, "_id": events[unique], "_time": events[time].cast(pa.int64())})


def without(events: DataFrame, places: pa.Table) -> DataFrame:
    """All events but those at these places, which are data: a plan that named them would be compiled each time."""
    if not places.num_rows:
        return events
    left_out = events.sparkSession.createDataFrame(places)
    return events.join(F.broadcast(left_out), [*PLACE], "left_anti")


def without_here(events: pa.Table, places: pa.Table) -> pa.Table:
    """The same of events in this process."""
    return events.filter(pa.array(~at_places(events, places))) if places.num_rows else events


def at_places(events: pa.Table, places: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of the events are at these places."""
    (partitions, offsets), (where, these) = ([one[name].to_numpy() for name in PLACE] for one in (events, places))
    found = np.zeros(len(offsets), np.bool_)
    for partition in np.unique(partitions):  # of one task's events they are few
        mine = partitions == partition
        found[mine] = np.isin(offsets[mine], these[where == partition])
    return found


def remembered(found: pa.Table, span: Span) -> pa.Table:
    """Of identified events those that were not late in the micro-batch that held them, as ids are remembered."""
    partitions, offsets, times = (found[name].to_numpy() for name in (*PLACE, "_time"))
    held = numbers(span.edges(), partitions, offsets)
    kept = (held >= 0) & (times > span.late()[held] * 1000)
    return found.filter(pa.array(kept)).select(["_id", "_time"])
