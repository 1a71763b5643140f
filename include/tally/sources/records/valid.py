"""Which records are valid for sure, and their rows, without Spark. The others are the reference decode's to judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from tally.base.duration import millis, parse_duration
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.sources.records.plain import Reader

MOMENT = pa.timestamp("us", "UTC")


@dataclass(frozen=True, kw_only=True)
class Valid:
    """Reads a topic's records many at once; plain data, which can be sent to Spark's workers."""

    reader: Reader
    time: str
    needed: tuple[str, ...]  # the columns in which a valid record has a value
    skew: int  # milliseconds that an event may be ahead of the broker

    @classmethod
    def of(cls, topic: Topic) -> Valid | None:
        """None where no record of the topic can be read here."""
        reader = Reader(topic.schema)
        needed = dict.fromkeys([topic.event_time, topic.unique, *(f.name for f in topic.schema if f.required)])
        skew = millis(parse_duration(settings().skew, field="TALLY_SKEW"))
        sure = tuple(name for name in needed if name)
        known = reader.covers and {field.name: field.type for field in topic.schema}[topic.event_time] == "TIMESTAMP"
        return cls(reader=reader, time=topic.event_time, needed=sure, skew=skew) if known else None

    @property
    def schema(self) -> pa.Schema:
        """Of the events."""
        columns = [pa.field(one.name, one.arrow) for one in self.reader.columns]
        places = [("_partition", pa.int32()), ("_offset", pa.int64()), ("_broker_time", MOMENT)]
        return pa.schema([*columns, *(pa.field(*one) for one in places)])

    def told_apart(self, records: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The events of records that are valid for sure, with their places, and the records that may be or not.

        Records have `value`, `partition`, `offset` and `timestamp`.
        """
        read = self.reader.read(records["value"].combine_chunks())
        columns = {one.name: read.field(at) for at, one in enumerate(self.reader.columns)}
        arrived = records["timestamp"].cast(MOMENT)
        there = reduce(pc.and_, (columns[name].is_valid() for name in self.needed), read.is_valid())
        sure = pc.and_(there, self.in_time(columns, arrived))
        places = {"_partition": records["partition"], "_offset": records["offset"], "_broker_time": arrived}
        events = pa.table({**columns, **places}, schema=self.schema)
        if not sure.false_count:
            return events, records.slice(0, 0)
        return events.filter(sure), records.filter(pc.invert(sure))

    def in_time(self, columns: Mapping[str, pa.Array], arrived: pa.ChunkedArray) -> pa.Array:
        """Whether an event is no further ahead of the broker's time, of which the milliseconds count."""
        latest = (arrived.cast(pa.int64()).to_numpy() // 1000 + self.skew) * 1000
        times = columns[self.time].cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(times <= latest)
