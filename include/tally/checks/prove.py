"""Proves a function on random events: both layers give the same rows, in any order, one for each window and key."""

from __future__ import annotations

import math
import os
import random
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DoubleType, FloatType, StructType

from tally.base.duration import iso
from tally.base.errors import DefinitionError, TallyError
from tally.base.settings import settings
from tally.catalog.spec import Pipeline
from tally.checks.definition import author_error
from tally.checks.sample import Row, Sample, moment, sample
from tally.kinds import kind_of
from tally.lake.session import session
from tally.sources.frames import without_duplicates

ARRIVAL = "_partition INT, _offset BIGINT, _broker_time TIMESTAMP"
Place = tuple[Any, ...]
Rows = dict[Place, Row]
DIGITS = {DoubleType: 2.0**-52, FloatType: 2.0**-23}
ORDER = "let the events alone decide: no chance, no first(); an order that ends with the value or the unique column"
STREAM = "filter before groupBy, aggregate once, and let each row follow from the events of its window and key"
SINGLE = 'group by exactly "window" and the columns of key='


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What was tried: with the seed it can be tried again. Without rows, nothing was shown."""

    pipeline: str
    seed: int
    events: int
    micro_batches: int
    rows: int
    seconds: float


def prove_all(pipelines: Sequence[Pipeline], seed: int) -> tuple[dict[str, Proof], dict[str, TallyError]]:
    """Each pipeline's proof, or what it fails of."""
    if not settings().spark_master.startswith("local"):
        cure = "TALLY_SPARK_MASTER='local[2]' tally check --prove"
        raise TallyError("a proof's events are files of this machine", field="TALLY_SPARK_MASTER", cure=cure)
    spark = session("tally-check", brief=True)
    proofs: dict[str, Proof] = {}
    failed: dict[str, TallyError] = {}
    for pipeline in pipelines:
        try:
            proofs[pipeline.name] = prove(spark, pipeline, seed)
        except TallyError as fault:
            failed[pipeline.name] = fault
    return proofs, failed


def prove(spark: SparkSession, pipeline: Pipeline, seed: int) -> Proof:
    """Run a function over random events in both layers; raises where they differ, with window, key and both rows."""
    began = time.monotonic()
    shapes = [StructType.fromDDL(topic.ddl) for topic in pipeline.reads]
    drawn = sample(pipeline, shapes, seed)
    with tempfile.TemporaryDirectory(prefix="tally-prove-") as folder:
        root = Path(folder)
        full = [StructType.fromDDL(f"{topic.ddl}, {ARRIVAL}") for topic in pipeline.reads]
        write(drawn, full, root, seed)
        try:
            rows = batch(spark, pipeline, full, root, "arrived")
            case = Case(pipeline, drawn, seed, rows.schema)
            expected = case.single([row.asDict(recursive=True) for row in rows.collect()], "the batch")
            other = batch(spark, pipeline, full, root, "shuffled").collect()
            case.same(expected, case.single([row.asDict(recursive=True) for row in other], "the batch"), "again", ORDER)
            streamed, batches = stream(spark, pipeline, full, root, case)
        except TallyError:
            raise
        except Exception as error:
            raise failed(error, pipeline, seed) from None
        case.same(expected, streamed, "stream", STREAM)
    return Proof(
        pipeline=pipeline.name,
        seed=seed,
        events=sum(len(chunk) for chunks in drawn.topics for chunk in chunks),
        micro_batches=batches,
        rows=len(expected),
        seconds=round(time.monotonic() - began, 1),
    )


def write(drawn: Sample, full: Sequence[StructType], root: Path, seed: int) -> None:
    """The events as files: one for each micro-batch as they arrive, and once more in another order."""
    chance = random.Random(seed)
    for at, (chunks, shape) in enumerate(zip(drawn.topics, full, strict=True)):
        rows = [row for chunk in chunks for row in chunk]
        chance.shuffle(rows)
        thirds = [rows[start::3] for start in range(3)]
        for name, parts in (("arrived", chunks), ("shuffled", thirds)):
            place = root / name / str(at)
            place.mkdir(parents=True)
            for number, part in enumerate(parts):
                file = place / f"{number:02}.parquet"
                pq.write_table(pa.Table.from_pylist(part, schema=to_arrow_schema(shape, timezone="UTC")), file)
                os.utime(file, (number + 1, number + 1))  # Spark takes files up by their age


def batch(spark: SparkSession, pipeline: Pipeline, full: Sequence[StructType], root: Path, order: str) -> DataFrame:
    """The function's rows over all events at once, as the batch layer has them."""
    frames = []
    for at, (topic, shape) in enumerate(zip(pipeline.reads, full, strict=True)):
        events = spark.read.schema(shape).parquet(str(root / order / str(at)))
        frames.append(without_duplicates(events, topic))
    return kind_of(pipeline).applied(frames)


def stream(
    spark: SparkSession, pipeline: Pipeline, full: Sequence[StructType], root: Path, case: Case
) -> tuple[Rows, int]:
    """The newest row of each window and key that the stream gives, and how many micro-batches it took."""
    frames = []
    for at, (topic, shape) in enumerate(zip(pipeline.reads, full, strict=True)):
        files = spark.readStream.schema(shape).option("maxFilesPerTrigger", 1).parquet(str(root / "arrived" / str(at)))
        frames.append(files.select(*topic.columns))
    kind = kind_of(pipeline)
    out = kind.streamed(kind.unbounded(frames))
    batches: list[list[Row]] = []

    def keep(rows: DataFrame, _: int) -> None:
        batches.append([row.asDict(recursive=True) for row in rows.collect()])

    query = (
        out.writeStream.outputMode("append" if pipeline.append_only else "update")
        .option("checkpointLocation", str(root / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    newest: Rows = {}
    for rows in batches:
        newest |= case.single(rows, "a micro-batch of the stream")
    return newest, len(batches)


class Case:
    """One pipeline's comparison: which rows are compared, how close is the same, and what to say where they differ."""

    def __init__(self, pipeline: Pipeline, drawn: Sample, seed: int, schema: StructType) -> None:
        self.pipeline, self.seed, self.schema = pipeline, seed, schema
        self.end = moment(drawn.end)
        self.events = sum(len(chunk) for chunks in drawn.topics for chunk in chunks)
        self.weight = drawn.weight
        self.places = ("window_start", "window_end", *pipeline.key)

    def single(self, rows: Sequence[Row], where: str) -> Rows:
        """The rows by window and key, without those of the last event, which only moves the watermark on."""
        found: Rows = {}
        for row in rows:
            if row["window_start"].astimezone() > self.end:
                continue
            place = tuple(repr(row[name]) for name in self.places)
            if place in found:
                self.refuse(f"{where} has several rows", row, {"one": found[place], "another": row}, SINGLE)
            found[place] = row
        return found

    def same(self, batch: Rows, other: Rows, name: str, cure: str) -> None:
        for place in sorted(batch.keys() | other.keys()):
            one, two = batch.get(place), other.get(place)
            if one is None or two is None or not self.alike(one, two):
                said = "the batch differs from itself" if name == "again" else "the stream differs from the batch"
                self.refuse(said, one or two or {}, {"batch": one, name: two}, cure)

    def alike(self, one: Row, two: Row) -> bool:
        return all(self.close(field.dataType, one[field.name], two[field.name]) for field in self.schema.fields)

    def close(self, kind: Any, a: Any, b: Any) -> bool:
        """Whether two values are the same; a measure in floating point up to what the order of its events may do."""
        if a == b or type(kind) not in DIGITS or a is None or b is None:
            return bool(a == b)
        if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
            return math.isnan(a) and math.isnan(b)
        return bool(abs(a - b) <= self.events * DIGITS[type(kind)] * max(abs(a), abs(b), self.weight))

    def refuse(self, said: str, row: Row, sides: dict[str, Row | None], cure: str) -> NoReturn:
        places = {*self.places}
        key = ", ".join(f"{name}={row[name]!r}" for name in self.pipeline.key)
        shown = "; ".join(f"{side}: {without(values, places)}" for side, values in sides.items())
        raise DefinitionError(
            f"on random events (seed {self.seed}) {said}: "
            f"window {iso(row['window_start'].astimezone())}, {key}: {shown}",
            pipeline=self.pipeline.name,
            field="function",
            where=self.pipeline.where,
            cure=cure,
        )


def without(values: Row | None, names: set[str]) -> str:
    if values is None:
        return "no row"
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if name not in names)


def failed(error: Exception, pipeline: Pipeline, seed: int) -> DefinitionError:
    """A function that fails on an event fails on it whenever it is read: the stream would stand still."""
    told = author_error(error, pipeline)
    raised = re.findall(r"^(?!py4j|pyspark)[\w.]*(?:Error|Exception): .*$", str(error), re.M)
    in_python = "Python worker" in str(error) and raised
    message = raised[-1] if in_python else re.sub(r"\[STREAM_FAILED\].*?with exception: ", "", told.message)
    return DefinitionError(
        f"it fails on random events (seed {seed}): {message[:400]}",
        pipeline=pipeline.name,
        field="function",
        where=told.where,
        cure="let it take any event that the topic allows: try_divide, try_cast, coalesce",
    )
