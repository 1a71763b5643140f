"""A short number for the rows of each slot: equal digests mean rows that are equal but for rounding.

A floating-point measure enters with ten significant digits, so sums taken in another order digest alike; where a value
happens to lie on the edge of a digit, the slot is merely compared row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from tally.catalog.duration import millis
from tally.catalog.spec import Pipeline


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The rows of a slot in short: how many, the sum of their hashes, and the last end of their windows."""

    rows: int
    hash: str
    last_end: int


def steady(column: Column, kind: DataType) -> Column:
    """A value's text that does not depend on the order in which it was summed."""
    if isinstance(kind, DoubleType | FloatType):
        # Adding 0.0 makes a negative zero an ordinary one.
        return F.when(column.isNull(), None).otherwise(F.format_string("%.9e", column.cast("double") + F.lit(0.0)))
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.to_json(F.struct(column.alias("v")))
    return column.cast("string")


def row_hash(rows: DataFrame) -> Column:
    """One row's hash over all its columns but the engine's own."""
    named = [f for f in rows.schema.fields if not f.name.startswith("_")]
    texts = [F.coalesce(F.concat(F.lit("="), steady(F.col(f.name), f.dataType)), F.lit("null")) for f in named]
    return F.xxhash64(*texts).cast("decimal(38,0)")


def slot_of(pipeline: Pipeline) -> Column:
    start, step = F.unix_millis("window_start"), F.lit(millis(pipeline.window.step))
    return start - F.pmod(start, step)


def digests(rows: DataFrame, pipeline: Pipeline) -> dict[int, Digest]:
    """The digest of each slot that has rows, by slot start."""
    end = F.ceil(F.unix_micros("window_end") / F.lit(1000))  # over only when the watermark has passed all of it
    found = (
        rows.groupBy(slot_of(pipeline).alias("slot"))
        .agg(F.count("*").alias("n"), F.sum(row_hash(rows)).alias("h"), F.max(end).alias("e"))
        .collect()
    )
    return {row["slot"]: Digest(rows=row["n"], hash=str(row["h"]), last_end=row["e"]) for row in found}
