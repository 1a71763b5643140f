"""Random events for a pipeline's topics: typed, few values so that groups and joins meet, copies, ties, none late."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tally.base.duration import millis
from tally.catalog.fingerprint import reached
from tally.catalog.spec import Pipeline, Topic
from tally.kinds import kind_of

EVENTS = 240  # of each topic: some tens of groups of several events, and seconds of Spark
CHUNKS = 5  # micro-batches; the last event comes in one of its own
T0 = 1_767_571_200_000_000  # 2026-01-05, in microseconds: the start of a day
QUOTED, NUMBER = re.compile(r"'([^']{0,20})'"), re.compile(r"(?<![\w.'])\d{1,9}(?:\.\d{1,6})?(?![\w.'])")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Each topic's events in the order of their arrival, cut into micro-batches; `end` is the newest but the last."""

    topics: list[list[list[Row]]]
    end: int
    weight: float  # the sum of what numbers the events hold, and of their squares: how far rounding may go


class Maker:
    """Draws events of one pipeline by one seed."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.pipeline, self.chance = pipeline, random.Random(seed)
        words = constants(pipeline)
        self.texts = ["a", "b", "B", "", "é", *(w for w in words if isinstance(w, str) and len(w) <= 20)]
        numbers = [w for w in words if isinstance(w, int | float) and abs(w) <= 2**31 - 2]
        self.wholes = [0, 1, 2, 3, -1, *(int(n) + by for n in numbers for by in (0, 1))]
        self.reals = [0.1, 0.2, 0.3, -0.1, 1e-9, -1e-9, 1 / 3, 100.25, -2.5, 0.0, *map(float, numbers)]
        names = [set(topic.columns) for topic in pipeline.reads]
        self.shared = set.intersection(*names) if len(names) > 1 else set[str]()
        self.shared |= {topic.unique for topic in pipeline.reads if topic.unique and len(names) > 1}
        self.weight = 1.0

    def chunks(self, topic: Topic, shape: StructType, times: list[int], last: int) -> list[list[Row]]:
        """The events of one topic as they arrive: out of order by less than the lateness, some ids once more."""
        chance, delay = self.chance, millis(topic.lateness) * 900
        arriving = sorted((time + (chance.randrange(delay) if delay else 0), time) for time in times)
        cuts = sorted(chance.sample(range(1, len(arriving)), CHUNKS - 1))
        if not delay:
            cuts = [later(cut, [time for _, time in arriving]) for cut in cuts]
        rows = [self.row(topic, shape, time, at) for at, (_, time) in enumerate(arriving)]
        chunks = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
        for at, chunk in enumerate(chunks[1:], 1):
            earlier = [row for before in chunks[:at] for row in before]
            if topic.unique and earlier:
                copies = (chance.choice(earlier) for _ in range(max(1, len(chunk) // 10)))
                chunk += [self.again(topic, shape, row) for row in copies]
        chunks.append([self.row(topic, shape, last, EVENTS)])
        places = ((row, at) for at, row in enumerate(row for chunk in chunks for row in chunk))
        for row, at in places:
            arrived = datetime.fromtimestamp(T0 / 1e6, UTC) + timedelta(milliseconds=at)
            row.update(_partition=0, _offset=at, _broker_time=arrived)
        return chunks

    def again(self, topic: Topic, shape: StructType, row: Row) -> Row:
        """A copy of an id; what else it says may differ, and its event time does not."""
        copy = dict(row) if self.chance.random() < 0.5 else self.row(topic, shape, 0, 0)
        return copy | {topic.event_time: row[topic.event_time], str(topic.unique): row[str(topic.unique)]}

    def row(self, topic: Topic, shape: StructType, time: int, number: int) -> Row:
        row: Row = {}
        for field, column in zip(topic.schema, shape.fields, strict=True):
            if field.name == topic.event_time:
                row[field.name] = moment(time)
            elif field.name == topic.unique:
                row[field.name] = self.identity(column.dataType, number)
            elif not field.required and self.chance.random() < 0.08:
                row[field.name] = None
            elif field.name in self.shared and self.chance.random() < 0.8:
                row[field.name] = self.identity(column.dataType, self.chance.randrange(EVENTS))
            else:
                row[field.name] = self.value(column.dataType, time)
        return row

    def identity(self, kind: DataType, number: int) -> Any:
        if isinstance(kind, IntegralType):
            return number % 100 if isinstance(kind, ByteType) else number
        return f"id-{number}" if isinstance(kind, StringType) else self.value(kind, T0 + number * 1_000_000)

    def value(self, kind: DataType, time: int) -> Any:
        """A value of a type, from few: small, negative, tiny, zero, and those that the function's source names."""
        chance = self.chance
        if isinstance(kind, IntegralType):
            most = {ByteType: 127, ShortType: 32_767}.get(type(kind), 2**31 - 1)
            return self.weighed(max(-most, min(most, chance.choice(self.wholes))))
        if isinstance(kind, DecimalType):
            digits = 10 ** min(kind.precision, 5)
            return Decimal(chance.randrange(-digits + 1, digits)).scaleb(-kind.scale)
        if isinstance(kind, FractionalType):
            return self.weighed(chance.choice([*self.reals, chance.uniform(-100, 100)]))
        if isinstance(kind, StructType):
            return {field.name: self.value(field.dataType, time) for field in kind.fields}
        if isinstance(kind, ArrayType):
            return [self.value(kind.elementType, time) for _ in range(chance.randrange(4))]
        if isinstance(kind, MapType):
            pairs = {str(self.value(kind.keyType, time)): self.value(kind.keyType, time) for _ in range(2)}
            return [(key, self.value(kind.valueType, time)) for key in pairs.values()]
        if isinstance(kind, TimestampType | DateType):
            near = moment(max(time, T0) + chance.randrange(-600, 600) * 1_000_000)
            return near if isinstance(kind, TimestampType) else near.date()
        if isinstance(kind, BooleanType):
            return chance.random() < 0.5
        text: str = chance.choice(self.texts)
        return text.encode() if isinstance(kind, BinaryType) else text

    def weighed(self, number: Any) -> Any:
        self.weight += abs(number) + min(number * number, 1e8)  # of what the source names, only itself
        return number


def sample(pipeline: Pipeline, shapes: list[StructType], seed: int) -> Sample:
    """The events that a seed draws for a pipeline whose topics have these shapes: always the same."""
    maker = Maker(pipeline, seed)
    times = kind_of(pipeline).sample_times(maker.chance, T0, EVENTS)
    newest = max(max(one) for one in times)
    waits = sum((topic.lateness for topic in pipeline.reads), timedelta(0)) + pipeline.stretch
    last = newest + 4 * 1000 * (millis(pipeline.window.size) + millis(waits)) + 60_000_000
    given = zip(pipeline.reads, shapes, times, strict=True)
    topics = [maker.chunks(topic, shape, own, last) for topic, shape, own in given]
    return Sample(topics=topics, end=newest, weight=maker.weight)


def later(cut: int, times: list[int]) -> int:
    """A cut that parts no events of one instant: with no lateness, the next micro-batch has later ones only."""
    while cut < len(times) and times[cut] == times[cut - 1]:
        cut += 1
    return cut


def moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def constants(pipeline: Pipeline) -> list[str | int | float]:
    """The texts and numbers in a function's source, in SQL too: what its conditions ask for is drawn now and then."""
    found: set[str | int | float] = set()
    file = Path(pipeline.file)
    for one, places in reached(file, pipeline.name, file.parents[1]).values():
        for node in (part for at in places for part in ast.walk(one.body[at])):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value, *QUOTED.findall(node.value), *map(float, NUMBER.findall(node.value))}
            elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                found.add(node.value)
    return sorted(found, key=repr)
