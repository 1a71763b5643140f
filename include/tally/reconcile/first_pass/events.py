"""What became of each archived event of a comparison, told as the replay tells it (accounts.py, replay/fate.py).

DuckDB reads them: the count that conservation holds this against is made by another reader still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tally.base.duration import millis
from tally.base.sql_text import quoted
from tally.catalog.ranges import Range, merge
from tally.catalog.spec import Topic
from tally.kinds import fates, kind_of
from tally.reconcile.accounts import Account, times_of
from tally.reconcile.cut import Cut
from tally.reconcile.first_pass import unsure
from tally.reconcile.first_pass.tables import Snapshot
from tally.reconcile.first_pass.unsure import Unsure
from tally.reconcile.replay import copies
from tally.reconcile.replay.holders import GAP, UNREAD, holders, late_marks, repeated
from tally.reconcile.rows.made_of import MadeOf
from tally.sources import archive

if TYPE_CHECKING:
    import duckdb

Numbers = np.ndarray[Any, np.dtype[Any]]
Tagged = dict[str, Numbers]  # columns of events
IDS = ("byte", "short", "integer", "long", "string")
# Copies of one id are compared with one another: more of them are Spark's to look through.
MOST_COPIES = 200
AGGREGATED = "aggregated"


def account(
    connection: duckdb.DuckDBPyConnection, cut: Cut, ranges: Sequence[Range], ends: Mapping[int, int],
    sized: Sequence[Collection[str]],
) -> list[tuple[list[Range], Account]]:  # fmt: skip
    """What became of the events that windows of the ranges are made of: by topic, with the event times.

    `sized` says of which columns of each topic the sizes are summed.
    """
    parts = zip(cut.pipeline.reads, times_of(cut, ranges, ends), sized, strict=True)
    return [(times, of_topic(connection, cut, topic, times, names)) for topic, times, names in parts]


def of_topic(
    connection: duckdb.DuckDBPyConnection, cut: Cut, topic: Topic, times: Sequence[Range], sized: Collection[str]
) -> Account:
    events = read(connection, cut, topic, copies.around(cut, topic, times), sized)
    if topic.unique and len(repeated_among(events["_partition"] << 48 | events["_offset"])):
        raise Unsure(f"the archive of {topic.name} has an offset twice")
    tagged = with_copies(with_fate(events, topic, cut), topic, cut)
    edges = np.array(merge(times), dtype="int64").reshape(-1) * 1000
    inside = np.searchsorted(edges, tagged["_time"], side="right") % 2 == 1
    return counted({name: column[inside] for name, column in tagged.items()}, cut, sized)


def read(
    connection: duckdb.DuckDBPyConnection, cut: Cut, topic: Topic, ranges: Sequence[Range], sized: Collection[str]
) -> Tagged:
    """The archived events in ranges of event time: place, time, id and sizes."""
    table = Snapshot(path=archive.path(topic), version=cut.stated.versions[topic.name])
    time, named = topic.event_time, {"_partition": "_partition::BIGINT", "_offset": "_offset", "_ingest": "_ingest"}
    wanted = [*named, time, *sized]
    if topic.unique:
        if table.types[topic.unique] not in IDS:
            raise Unsure(f"the id of {topic.name} is of type {table.types[topic.unique]}")
        wanted += ["_broker_time", topic.unique]
        named |= {"_arrived": "epoch_us(_broker_time)", "_id": quoted(topic.unique)}
    named |= {"_time": f"epoch_us({quoted(time)})"}
    named |= {f"scale {name}": f"abs({quoted(name)}::DOUBLE)" for name in sized}
    columns = ", ".join(f"{of} AS {quoted(name)}" for name, of in named.items())
    rows = table.read(connection, list(dict.fromkeys(wanted)), time, ranges)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE events AS SELECT {columns} FROM ({rows})")
    unsure.check_size(connection, "events")
    found = connection.sql("FROM events").to_arrow_table()
    if any(found.column(name).null_count for name in named if not name.startswith("scale ")):
        raise Unsure(f"an event of {topic.name} has no place, time or id")
    return {name: numbers(found.column(name)) for name in named}


def numbers(column: pa.ChunkedArray) -> Numbers:
    """A column as numbers; texts as the numbers of their first ones, and what is null as 0, which adds nothing."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.dictionary_encode(column.combine_chunks()).indices
    found: Numbers = pc.fill_null(column, 0).to_numpy()
    return found


def with_fate(events: Tagged, topic: Topic, cut: Cut) -> Tagged:
    """Events with `_fate`, which knows nothing of windows and of copies, and the numbers of their micro-batches."""
    index, again = holders(cut, topic.name)(events["_partition"], events["_offset"])
    # Where there is none, a watermark as good as one before all time: nothing is late by it.
    marks = np.append(late_marks(cut), [-(1 << 53), -(1 << 53)]) * 1000  # of UNREAD and GAP, from behind
    late_at, again_at, time = marks[index], marks[again], events["_time"]
    by_time = cut.late_rule == "event"
    late = (time <= late_at) & by_time
    twice = (again >= 0) & ((time > again_at) | (not by_time)) & (not topic.unique)
    told = [(index == GAP, fates.SKIPPED), (index == UNREAD, fates.IN_FLIGHT), (late, fates.LATE), (twice, fates.TWICE)]
    fate = np.select([which for which, _ in told], [word for _, word in told], fates.ACCEPTED).astype(object)
    is_counted = np.ones(len(time), dtype=bool)
    return {**events, "_batch_index": index, "_late_at": late_at, "_fate": fate, "_counted": is_counted,
            "_newest": events["_ingest"]}  # fmt: skip


def with_copies(tagged: Tagged, topic: Topic, cut: Cut) -> Tagged:
    """The same with what copies of an id do to one another, in the batch and in the stream."""
    if not topic.unique:
        return tagged
    follow, span = repeated(cut, topic), millis(topic.lateness) * 1000
    counted, newest, fate = (tagged[name].copy() for name in ("_counted", "_newest", "_fate"))
    for copies_of in groups(tagged):
        if len(copies_of) > MOST_COPIES:
            raise Unsure(f"an id of {topic.name} has {len(copies_of)} copies")
        for one in copies_of:
            near = [other for other in copies_of if abs(other.time - one.time) <= span]
            counted[one.at] = one.arrival == min(other.arrival for other in near)
            newest[one.at] = max(other.ingest for other in near)
        accepted = {one.arrival[1:]: one for one in copies_of if fate[one.at] == fates.ACCEPTED}
        for partition, offset, again in follow((one.batch, *one.arrival[1:], one.time) for one in accepted.values()):
            if again:
                fate[accepted[partition, offset].at] = fates.DUPLICATE
    return {**tagged, "_counted": counted, "_newest": newest, "_fate": fate}


class Copy(NamedTuple):
    """One of the events that bear the same id."""

    at: int  # the row
    batch: int
    time: int  # microseconds
    ingest: int
    arrival: tuple[int, int, int]  # broker time, partition, offset


def groups(tagged: Tagged) -> Iterator[list[Copy]]:
    """The events of each id that more than one bears."""
    rows = np.flatnonzero(np.isin(tagged["_id"], repeated_among(tagged["_id"])))
    found = dict[int, list[Copy]]()
    names = ("_id", "_batch_index", "_time", "_ingest", "_arrived", "_partition", "_offset")
    columns = (rows.tolist(), *(tagged[name][rows].tolist() for name in names))
    for at, key, batch, time, ingest, *arrival in zip(*columns, strict=True):
        one = Copy(at=at, batch=batch, time=time, ingest=ingest, arrival=(arrival[0], arrival[1], arrival[2]))
        found.setdefault(key, []).append(one)
    yield from found.values()


def repeated_among(values: Numbers) -> Numbers:
    """The values that are there more than once: few, and a sort is all that it takes to know them."""
    ordered = np.sort(values)
    found: Numbers = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return found


def counted(events: Tagged, cut: Cut, sized: Collection[str]) -> Account:
    """The account of tagged events."""
    step, time = millis(cut.pipeline.window.step), events["_time"]
    starts, of = np.unique(time // 1000 - time // 1000 % step, return_inverse=True)
    newest, differ = np.full(len(starts), -1, dtype="int64"), np.zeros(len(starts), dtype=bool)
    np.maximum.at(newest, of, events["_newest"])
    np.logical_or.at(differ, of, differing(events, cut))
    return Account(
        places=Counter(place(events, cut).tolist()),
        starts=starts.tolist(),
        events=np.bincount(of, minlength=len(starts)),
        scale={name: np.bincount(of, weights=events[f"scale {name}"], minlength=len(starts)) for name in sized},
        newest=newest,
        differing=differ,
    )


def place(events: Tagged, cut: Cut) -> Numbers:
    """Where each record is accounted for."""
    word, accepted = events["_fate"], fates.ACCEPTED
    unread_late = (word == fates.IN_FLIGHT) & (events["_time"] <= cut.last.watermark * 1000)
    word = np.where(unread_late | ((word == accepted) & over(events, cut, every=True)), fates.LATE, word)
    word = np.where(~events["_counted"] & (word != accepted), fates.DUPLICATE, word)
    return np.where(word == accepted, AGGREGATED, word)


def differing(events: Tagged, cut: Cut) -> Numbers:
    """Whether the layers differ by an event, in one window at least."""
    is_counted = events["_counted"]
    found: Numbers = (is_counted != (events["_fate"] == fates.ACCEPTED)) | (is_counted & over(events, cut, every=False))
    return found


def over(events: Tagged, cut: Cut, *, every: bool) -> Numbers:
    """Whether every window of an event, or its first, was over before its micro-batch, where that is the rule."""
    if cut.late_rule != "window":
        return np.zeros(len(events["_time"]), dtype=bool)
    found: Numbers = kind_of(cut.pipeline).over_times(events["_time"], every=every) <= events["_late_at"]
    return found


def sized(topics: Sequence[Topic], made_of: Sequence[MadeOf]) -> list[list[str]]:
    """Of each topic the columns whose sizes say what may be rounding in one of the measures."""
    return [
        [column.name for column in topic.schema if any((at, column.name) in made for made in made_of)]
        for at, topic in enumerate(topics)
    ]
