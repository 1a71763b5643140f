"""The rows of both layers side by side: which are the very same, and of those that are not, what each side holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tally.catalog.spec import Pipeline
from tally.reconcile.rows import rounding
from tally.reconcile.rows.digest import NOTHING, Digest
from tally.reconcile.rows.hashes import TEXTS, Text, over_at, row_hash, slot_of, texts_of

# The share of its size that may be rounding, and the size of what is summed in each floating measure.
Limit = tuple[float, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The rows of a slot in both layers: how many, how many are not the very same, and how far apart those are."""

    rows: int
    stream_rows: int
    digest: str  # of the batch's rows
    last_end: int
    same: int  # rows that are the very same in both
    other: int  # rows that differ by more than floating numbers may, or that one layer lacks
    close: int  # rows that differ in floating numbers only
    apart: Sequence[float]  # the most of these, relative, for each floating measure
    apart_by: Sequence[float]  # and absolute

    def within(self, limit: float, scales: Sequence[float]) -> bool:
        """Whether nothing but rounding lies between the layers' rows, if they are made of the same events."""
        measures = zip(self.apart, self.apart_by, scales, strict=True)
        return self.other == 0 and all(rel <= limit or by <= limit * scale for rel, by, scale in measures)


def by_slot(batch: DataFrame, stream: DataFrame, pipeline: Pipeline) -> dict[int, Slot]:
    """Every slot that has a row in either layer, in one pass over both."""
    measures = len(floating(measures_of(batch, pipeline)))
    rows = by_slot_rows(side_by_side({"batch": batch, "stream": stream}, pipeline), measures).collect()
    return {
        row["_slot"]: Slot(
            rows=row["rows"],
            stream_rows=row["stream_rows"],
            digest=digest_of(row),
            last_end=row["last_end"],
            same=row["same"],
            other=row["other"],
            close=row["close"],
            apart=[most or 0.0 for most in row["apart"]],
            apart_by=[most or 0.0 for most in row["apart_by"]],
        )
        for row in rows
    }


def by_slot_rows(rows: DataFrame, measures: int) -> DataFrame:
    """A row a slot: how many rows either side has there, and how far apart they are, by floating measure."""
    finite = F.col("_apart") < rounding.APART
    counts = {
        "rows": F.count("batch"), "stream_rows": F.count("stream"), "last_end": F.max("_over"),
        **{name: F.sum(f"_{name}") for name in TEXTS}, "same": F.count_if(F.col("_apart") == 0),
        "other": F.count_if(~finite), "close": F.count_if(finite & (F.col("_apart") > 0)),
    }  # fmt: skip
    for name, of in (("apart", "_relative"), ("apart_by", "_absolute")):
        counts[name] = F.array(*(F.max(F.when(finite, F.col(of)[at])) for at in range(measures))).cast("array<double>")
    return rows.groupBy("_slot").agg(*(column.alias(name) for name, column in counts.items()))


def digest_of(row: Row) -> str:
    """The text of a slot's digest."""
    sums = {name: str(row[name]) for name in TEXTS}
    return Digest(rows=row["rows"], **sums, last_end=0).text if row["rows"] else NOTHING


def side_by_side(sides: Mapping[str, DataFrame], pipeline: Pipeline) -> DataFrame:
    """One row per window and key with the measures of each side (null: no such row), and how far apart they are.

    `_apart` compares batch and stream by the measure that is furthest apart; `_relative` and `_absolute` have the
    distance of each floating one. A side that has two rows of one window and key is near nothing.
    """
    kinds = measures_of(sides["batch"], pipeline)
    joined = gathered(sides, ["window_start", "window_end", *pipeline.key], list(kinds), texts_of(pipeline))
    return joined.withColumns(
        {
            "_slot": slot_of(pipeline),
            "_over": over_at(),
            "_apart": distance("batch", "stream", kinds, rounding.relative),
            "_relative": distances("batch", "stream", kinds, rounding.relative),
            "_absolute": distances("batch", "stream", kinds, rounding.absolute),
        }
    ).where("batch IS NOT NULL OR stream IS NOT NULL")


def measures_of(rows: DataFrame, pipeline: Pipeline) -> dict[str, DataType]:
    keys = ("window_start", "window_end", *pipeline.key)
    return {f.name: f.dataType for f in rows.schema.fields if f.name not in keys}


def gathered(
    sides: Mapping[str, DataFrame], keys: list[str], measures: list[str], texts: Mapping[str, Text]
) -> DataFrame:
    """Each side's row of each window and key, as a struct, with the number of rows that the fullest side has."""
    packed = []
    for side, rows in sides.items():
        row = F.struct(F.lit(1).alias("_"), *measures).alias("_row")
        mine = side == "batch"
        none = F.lit(None).cast("decimal(38,0)")
        hashes = [(row_hash(rows, text) if mine else none).alias(f"_{name}") for name, text in texts.items()]
        packed.append(rows.select(*keys, F.lit(side).alias("_side"), row, *hashes))
    union = packed[0]
    for frame in packed[1:]:
        union = union.unionByName(frame)
    of = {side: F.when(F.col("_side") == side, F.col("_row")) for side in sides}
    return union.groupBy(*keys).agg(
        *(F.first(row, ignorenulls=True).alias(side) for side, row in of.items()),
        *(F.sum(f"_{name}").alias(f"_{name}") for name in TEXTS),
        F.greatest(F.lit(0), *(F.count(row) for row in of.values())).alias("_times"),
    )  # fmt: skip


def distance(left: str, right: str, kinds: Mapping[str, DataType], measure: rounding.Measure) -> Column:
    """How far apart two sides of a row are; both may lack it."""
    a, b = F.col(left), F.col(right)
    measures = [rounding.distance(a[name], b[name], kind, measure) for name, kind in kinds.items()]
    apart = rounding.where_both(a, b, rounding.largest(measures))
    return F.when(F.col("_times") > 1, rounding.APART).otherwise(apart)


def floating(kinds: Mapping[str, DataType]) -> dict[str, DataType]:
    """The measures that are, or have in them, floating-point numbers."""
    return {name: kind for name, kind in kinds.items() if rounding.floats(kind)}


def distances(left: str, right: str, kinds: Mapping[str, DataType], measure: rounding.Measure) -> Column:
    """How far apart two sides of a row are in each floating measure."""
    a, b = F.col(left), F.col(right)
    apart = [rounding.distance(a[name], b[name], kind, measure) for name, kind in floating(kinds).items()]
    return F.array(*(rounding.where_both(a, b, one) for one in apart)).cast("array<double>")


def not_the_same(sides: Mapping[str, DataFrame], pipeline: Pipeline, limits: DataFrame) -> DataFrame:
    """The rows in which the layers are not the very same, each with `_near` and `_explained`.

    `limits` says by slot what may be rounding. A row is explained where each side is what the archive gives: the
    stream's by the replay, the batch's by stating it again.
    """
    rows = side_by_side(sides, pipeline).where("_apart > 0").join(F.broadcast(limits), "_slot", "left")
    limit, kinds = F.coalesce("_limit", F.lit(rounding.STEP)), measures_of(sides["batch"], pipeline)

    def near(left: str, right: str) -> Column:
        found = distance(left, right, kinds, rounding.relative) < rounding.APART
        relative, absolute = (distances(left, right, kinds, how) for how in (rounding.relative, rounding.absolute))
        for at in range(len(floating(kinds))):
            found &= rounding.near(relative[at], absolute[at], limit, F.coalesce(F.col("_scales")[at], F.lit(0.0)))
        return found

    return rows.withColumns(
        {"_near": near("batch", "stream"), "_explained": near("replayed", "stream") & near("restated", "batch")}
    )


def limits_frame(spark: SparkSession, limits: Mapping[int, Limit]) -> DataFrame:
    """Per slot, the share that may be rounding, and the size of what is summed in each floating measure."""
    shape = pa.schema([("_slot", pa.int64()), ("_limit", pa.float64()), ("_scales", pa.list_(pa.float64()))])
    rows = [{"_slot": slot, "_limit": limit, "_scales": list(scales)} for slot, (limit, scales) in limits.items()]
    return spark.createDataFrame(pa.Table.from_pylist(rows, shape))
