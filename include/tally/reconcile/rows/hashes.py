"""What the digests of slots are worked out with in Spark: the texts that values enter, and hashes of rows."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from tally.base.duration import millis
from tally.catalog.spec import Pipeline
from tally.kinds import kind_of
from tally.reconcile.rows.digest import Digest

# Of complex values: to the microsecond, with what is null. The defaults leave out both.
WHOLE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
Text = Callable[[Column, DataType], Column]


def in_decimals(column: Column, kind: DataType) -> Column:
    """A value's text, a floating one's with ten digits: mostly the same in whatever order it was summed."""
    if isinstance(kind, DoubleType | FloatType):
        # Adding 0.0 makes a negative zero an ordinary one.
        return F.when(column.isNull(), None).otherwise(F.format_string("%.9e", column.cast("double") + F.lit(0.0)))
    return whole(column, kind)


def in_bits(column: Column, kind: DataType) -> Column:
    """The same with the upper 33 of its 53 bits: adding and taking away a larger value drops the lower ones."""
    if isinstance(kind, DoubleType | FloatType):
        value = column.cast("double") + F.lit(0.0)
        large = value * F.lit(2.0**20 + 1)
        return F.when(F.abs(value) < 1e300, (large - (large - value)).cast("string")).otherwise(value.cast("string"))
    return whole(column, kind)


def whole(column: Column, kind: DataType) -> Column:
    """A value's text, to the last digit."""
    if isinstance(kind, ArrayType | MapType | StructType):
        return F.to_json(F.struct(column.alias("v")), WHOLE)
    return column.cast("string")


TEXTS: dict[str, Text] = {"decimal": in_decimals, "binary": in_bits, "exact": whole}


def texts_of(pipeline: Pipeline) -> dict[str, Text]:
    """As what a pipeline's values enter; where nothing is summed, whole: any other value is another row."""
    return dict.fromkeys(TEXTS, whole) if kind_of(pipeline).row_by_row else TEXTS


def row_hash(rows: DataFrame, text: Text = whole) -> Column:
    """One row's hash over all its columns but the engine's own."""
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
    hashes = [F.sum(row_hash(rows, text)).alias(name) for name, text in texts_of(pipeline).items()]
    slots = rows.groupBy(slot_of(pipeline).alias("slot")).agg(
        F.count("*").alias("n"), *hashes, F.max(over_at()).alias("e")
    )
    return {
        row["slot"]: Digest(rows=row["n"], **{name: str(row[name]) for name in TEXTS}, last_end=row["e"])
        for row in slots.collect()
    }
