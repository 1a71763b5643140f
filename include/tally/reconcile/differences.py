"""The rows of both layers side by side: which are the very same, and of those that are not, what each side holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from tally.catalog.spec import Pipeline
from tally.reconcile import rounding
from tally.reconcile.digest import NOTHING, Digest, over_at, row_hash, slot_of

SIDES = ("batch", "stream", "replayed", "restated")


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
    apart: float  # the most of these, relative
    apart_by: float  # and absolute

    def within(self, limit: float, scale: float) -> bool:
        """Whether nothing but rounding lies between the layers' rows, if they are made of the same events."""
        return self.other == 0 and (self.apart <= limit or self.apart_by <= limit * scale)


def by_slot(batch: DataFrame, stream: DataFrame, pipeline: Pipeline) -> dict[int, Slot]:
    """Every slot that has a row in either layer, in one pass over both."""
    rows = by_slot_rows(side_by_side({"batch": batch, "stream": stream}, pipeline)).collect()
    return {
        row["_slot"]: Slot(
            rows=row["rows"],
            stream_rows=row["stream_rows"],
            digest=digest_of(row["rows"], row["rounded"], row["exact"]),
            last_end=row["last_end"],
            same=row["same"],
            other=row["other"],
            close=row["close"],
            apart=row["apart"] or 0.0,
            apart_by=row["apart_by"] or 0.0,
        )
        for row in rows
    }


def by_slot_rows(rows: DataFrame) -> DataFrame:
    """A row a slot: how many rows either side has there, and how far apart they are."""
    finite = F.col("_apart") < rounding.APART
    counts = {
        "rows": F.count("batch"), "stream_rows": F.count("stream"), "last_end": F.max("_over"),
        "rounded": F.sum("_rounded"), "exact": F.sum("_exact"), "same": F.count_if(F.col("_apart") == 0),
        "other": F.count_if(~finite), "close": F.count_if(finite & (F.col("_apart") > 0)),
        "apart": F.max(F.when(finite, F.col("_apart"))), "apart_by": F.max(F.when(finite, F.col("_apart_by"))),
    }  # fmt: skip
    return rows.groupBy("_slot").agg(*(column.alias(name) for name, column in counts.items()))


def digest_of(rows: int, rounded: object, exact: object) -> str:
    return Digest(rows=rows, rounded=str(rounded), exact=str(exact), last_end=0).text if rows else NOTHING


def side_by_side(sides: Mapping[str, DataFrame], pipeline: Pipeline) -> DataFrame:
    """One row per window and key with the measures of each side (null: no such row), and how far apart they are.

    `_apart` and `_apart_by` compare batch and stream. A side that has two rows of one window and key is near nothing.
    """
    kinds = measures_of(sides["batch"], pipeline)
    joined = gathered(sides, ["window_start", "window_end", *pipeline.key], list(kinds))
    return joined.withColumns(
        {
            "_slot": slot_of(pipeline),
            "_over": over_at(),
            "_apart": distance("batch", "stream", kinds, rounding.relative),
            "_apart_by": distance("batch", "stream", kinds, rounding.absolute),
        }
    ).where("batch IS NOT NULL OR stream IS NOT NULL")


def measures_of(rows: DataFrame, pipeline: Pipeline) -> dict[str, DataType]:
    keys = ("window_start", "window_end", *pipeline.key)
    return {f.name: f.dataType for f in rows.schema.fields if f.name not in keys}


def gathered(sides: Mapping[str, DataFrame], keys: list[str], measures: list[str]) -> DataFrame:
    """Each side's row of each window and key, as a struct, with the number of rows that the fullest side has."""
    packed = []
    for side, rows in sides.items():
        row = F.struct(F.lit(1).alias("_"), *measures).alias("_row")
        mine = side == "batch"
        hashes = [row_hash(rows, exact=exact) if mine else F.lit(None).cast("decimal(38,0)") for exact in (False, True)]
        packed.append(rows.select(*keys, F.lit(side).alias("_side"), row, hashes[0].alias("_r"), hashes[1].alias("_x")))
    union = packed[0]
    for frame in packed[1:]:
        union = union.unionByName(frame)
    of = {side: F.when(F.col("_side") == side, F.col("_row")) for side in sides}
    return union.groupBy(*keys).agg(
        *(F.first(row, ignorenulls=True).alias(side) for side, row in of.items()),
        F.sum("_r").alias("_rounded"), F.sum("_x").alias("_exact"),
        F.greatest(F.lit(0), *(F.count(row) for row in of.values())).alias("_times"),
    )  # fmt: skip


def distance(left: str, right: str, kinds: Mapping[str, DataType], measure: rounding.Measure) -> Column:
    """How far apart two sides of a row are; both may lack it."""
    a, b = F.col(left), F.col(right)
    measures = [rounding.distance(a[name], b[name], kind, measure) for name, kind in kinds.items()]
    apart = rounding.where_both(a, b, rounding.largest(measures))
    return F.when(F.col("_times") > 1, rounding.APART).otherwise(apart)


def not_the_same(sides: Mapping[str, DataFrame], pipeline: Pipeline, limits: DataFrame) -> DataFrame:
    """The rows in which the layers are not the very same, each with `_near` and `_explained`.

    `limits` says by slot what may be rounding. A row is explained where each side is what the archive gives: the
    stream's by the replay, the batch's by stating it again.
    """
    rows = side_by_side(sides, pipeline).where("_apart > 0").join(F.broadcast(limits), "_slot", "left")
    limit, scale = F.coalesce("_limit", F.lit(rounding.STEP)), F.coalesce("_scale", F.lit(0.0))
    kinds = measures_of(sides["batch"], pipeline)

    def near(left: str, right: str) -> Column:
        apart = distance(left, right, kinds, rounding.relative), distance(left, right, kinds, rounding.absolute)
        return rounding.near(*apart, limit, scale)

    return rows.withColumns(
        {"_near": near("batch", "stream"), "_explained": near("replayed", "stream") & near("restated", "batch")}
    )


def limits_frame(spark: SparkSession, limits: Mapping[int, tuple[float, float]]) -> DataFrame:
    """Per slot, the share that may be rounding, and the size of what is summed."""
    shape = pa.schema([("_slot", pa.int64()), ("_limit", pa.float64()), ("_scale", pa.float64())])
    rows = [{"_slot": slot, "_limit": limit, "_scale": scale} for slot, (limit, scale) in limits.items()]
    return spark.createDataFrame(pa.Table.from_pylist(rows, shape))
