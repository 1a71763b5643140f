"""A short text for a slot's rows: whether they are the same but for rounding, and whether they are the very same.

For the first, a floating-point measure enters with ten significant digits, so sums taken in another order digest alike;
it decides whether a window that is sealed again has a new revision. For the second it enters whole: a row that was
changed behind a seal's back is seen, by however little.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from tally.catalog.duration import millis
from tally.catalog.spec import Pipeline

# Of complex values: to the microsecond, with what is null. The defaults leave out both.
WHOLE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
PARTED = ":"


@dataclass(frozen=True, kw_only=True)
class Digest:
    """The rows of a slot in short: how many, the sums of their two hashes, and the last end of their windows."""

    rows: int
    rounded: str
    exact: str
    last_end: int

    @property
    def text(self) -> str:
        """What a seal keeps."""
        return f"{self.rounded}{PARTED}{self.exact}"


NOTHING = f"0{PARTED}0"


def alike(one: str, other: str) -> bool:
    """Whether two digests' texts are of the same rows, but for rounding."""
    return one.partition(PARTED)[0] == other.partition(PARTED)[0]


def steady(column: Column, kind: DataType) -> Column:
    """A value's text that does not depend on the order in which it was summed."""
    if isinstance(kind, DoubleType | FloatType):
        # Adding 0.0 makes a negative zero an ordinary one.
        return F.when(column.isNull(), None).otherwise(F.format_string("%.9e", column.cast("double") + F.lit(0.0)))
    return whole(column, kind)


def whole(column: Column, kind: DataType) -> Column:
    """A value's text, to the last digit."""
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.to_json(F.struct(column.alias("v")), WHOLE)
    return column.cast("string")


def row_hash(rows: DataFrame, *, exact: bool) -> Column:
    """One row's hash over all its columns but the engine's own."""
    text = whole if exact else steady
    named = [f for f in rows.schema.fields if not f.name.startswith("_")]
    texts = [F.coalesce(F.concat(F.lit("="), text(F.col(f.name), f.dataType)), F.lit("null")) for f in named]
    return F.xxhash64(*texts).cast("decimal(38,0)")


def slot_of(pipeline: Pipeline) -> Column:
    start, step = F.unix_millis("window_start"), F.lit(millis(pipeline.window.step))
    return start - F.pmod(start, step)


def over_at() -> Column:
    """When a window is over, in milliseconds: only when the watermark has passed all of it."""
    return F.ceil(F.unix_micros("window_end") / F.lit(1000))


def digests(rows: DataFrame, pipeline: Pipeline) -> dict[int, Digest]:
    """The digest of each slot that has rows, by slot start."""
    hashes = [F.sum(row_hash(rows, exact=exact)).alias(name) for name, exact in (("r", False), ("x", True))]
    slots = rows.groupBy(slot_of(pipeline).alias("slot")).agg(
        F.count("*").alias("n"), *hashes, F.max(over_at()).alias("e")
    )
    return {
        row["slot"]: Digest(rows=row["n"], rounded=str(row["r"]), exact=str(row["x"]), last_end=row["e"])
        for row in slots.collect()
    }
