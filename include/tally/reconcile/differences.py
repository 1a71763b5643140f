"""The rows of both layers side by side: which are the same, which differ and why, in the audit table and in short."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

from tally import lake
from tally.catalog.duration import from_millis, iso
from tally.catalog.spec import Pipeline
from tally.engine import jvm_pid
from tally.failpoints import failpoint
from tally.finite import finite
from tally.reconcile import explain
from tally.reconcile.cut import Cut
from tally.reconcile.digest import slot_of
from tally.reconcile.found import Found
from tally.settings import settings
from tally.supervise import lock

SIDES = ("batch", "stream", "replayed", "restated")
AUDITED = ("batch", "stream", "replayed")
# A summary shows this many rows; the audit table holds all of them.
SHOWN = 20


def side_by_side(sides: dict[str, DataFrame], pipeline: Pipeline) -> DataFrame:
    """One row per window and key with the measures of each side (null: no such row), and how they compare."""
    keys = ["window_start", "window_end", *pipeline.key]
    measures = [f for f in sides["batch"].schema.fields if f.name not in keys]
    packed = [
        rows.select(
            *keys, F.lit(side).alias("_side"), F.struct(F.lit(1).alias("_"), *(f.name for f in measures)).alias("_row")
        )
        for side, rows in sides.items()
    ]
    union = packed[0]
    for frame in packed[1:]:
        union = union.unionByName(frame)
    by_side = [F.first(F.when(F.col("_side") == side, F.col("_row")), ignorenulls=True).alias(side) for side in SIDES]
    joined = union.groupBy(*keys).agg(*by_side)
    kinds = {f.name: f.dataType for f in measures}
    return joined.select(
        *keys, *SIDES,
        slot_of(pipeline).alias("_slot"),
        F.unix_millis("window_end").alias("_end"),
        same("batch", "stream", kinds, exact=False).alias("_same"),
        same("batch", "stream", kinds, exact=True).alias("_identical"),
        # Each side must be what the archive gives: the stream's by the replay, the batch's by stating it again.
        (
            same("replayed", "stream", kinds, exact=False) & same("restated", "batch", kinds, exact=False)
        ).alias("_explained"),
    ).where("batch IS NOT NULL OR stream IS NOT NULL")  # fmt: skip


def vouched(rows: DataFrame, unproven: Collection[int]) -> DataFrame:
    """The rows with those of unproven slots unexplained: neither the stream nor an earlier seal speaks for them."""
    if not unproven:
        return rows
    return rows.withColumn("_explained", F.col("_explained") & ~F.col("_slot").isin(sorted(unproven)))


def same(left: str, right: str, kinds: dict[str, DataType], *, exact: bool) -> Column:
    """Whether two sides agree: both lack the row, or all measures are equal, floats within the tolerance."""
    equal = F.lit(True)
    for name, kind in kinds.items():
        a, b = F.col(f"{left}.{name}"), F.col(f"{right}.{name}")
        if isinstance(kind, DoubleType | FloatType) and not exact:
            near = F.abs(a - b) <= F.greatest(F.abs(a), F.abs(b), F.lit(1.0)) * F.lit(settings().tolerance)
            equal = equal & (a.eqNullSafe(b) | F.coalesce(near, F.lit(False)))
        else:
            equal = equal & a.eqNullSafe(b)
    lacking = F.col(left).isNull() & F.col(right).isNull()
    return lacking | (F.col(left).isNotNull() & F.col(right).isNotNull() & equal)


def count_rows(rows: DataFrame, cut: Cut, cells: explain.Cells, found: Found) -> None:
    totals = rows.groupBy("_same", "_identical", "_explained", "_slot").count().collect()
    for row in totals:
        if row["_same"]:
            found.equal += row["count"]
            found.rounding += 0 if row["_identical"] else row["count"]
        else:
            found.different += row["count"]
            if not row["_explained"]:
                found.unexplained += row["count"]
                found.bad_slots[row["_slot"]] += row["count"]
    keyed = bool(explain.key_columns(cut, cut.pipeline.reads[0]))
    first = rows.where("NOT _same").orderBy("_explained", "window_start", *cut.pipeline.key).limit(SHOWN).collect()
    found.rows = [shown(row.asDict(recursive=True), cut, cells, keyed) for row in first]


def shown(row: dict[str, Any], cut: Cut, cells: explain.Cells, keyed: bool) -> dict[str, Any]:
    """A differing row as a person or a script reads it."""

    def side(values: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if values is None else {k: plain(v) for k, v in values.items() if k != "_"}

    cause = explain.cause_of(row, cut, cells, keyed) if row["_explained"] else "unexplained"
    return {
        "window_start": iso(from_millis(row["_slot"])) if row["window_start"] is None else utc(row["window_start"]),
        "window_end": utc(row["window_end"]),
        **{name: plain(row[name]) for name in cut.pipeline.key},
        "batch": side(row["batch"]),
        "stream": side(row["stream"]),
        "cause": cause,
    }


def utc(moment: Any) -> str:
    return iso(moment.astimezone())  # Spark hands out naive local times


def plain(value: Any) -> Any:
    return finite(value) if isinstance(value, int | float | str | bool | type(None)) else str(value)


def write_audit(rows: DataFrame, cut: Cut, cells: explain.Cells, number: int) -> None:
    """Append every differing row with its cause, under the comparison's id; a row is (reconciliation, window, key)."""
    pipeline = cut.pipeline
    where = settings().table("audit", pipeline.name)
    keyed = bool(explain.key_columns(cut, pipeline.reads[0]))
    key_names = list(pipeline.key)

    def cause(slot: int, end: int, key: Row, explained: bool) -> str:
        row = {"_slot": slot, "_end": end, **key.asDict()}
        return explain.cause_of(row, cut, cells, keyed) if explained else "unexplained"

    named = F.udf(cause, "string", useArrow=False)
    key = F.struct(*key_names)
    table = rows.where("NOT _same").select(
        F.lit(number).cast("bigint").alias("reconciliation"),
        "window_start",
        "window_end",
        F.to_json(key).alias("key"),
        *(F.to_json(F.col(side).dropFields("_")).alias(side) for side in AUDITED),
        named("_slot", "_end", key, "_explained").alias("cause"),
        F.col("_explained").alias("explained"),
    )
    with lock.table("audit", pipeline.name, jvm=jvm_pid(rows.sparkSession)):
        said = lake.words("audit", reconciliation=number)
        failpoint("reconcile.before_audit")
        table.coalesce(1).write.format("delta").mode("append").option("userMetadata", said).save(where)
        failpoint("reconcile.after_audit")
