"""Order-free checksums of records: the same rows give the same sums, however they are split, ordered and read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.catalog.spec import Topic

HOUR = 3_600_000
PLACE = ("_partition", "_offset", "_broker_time")
RECORD = (*PLACE, "_ingest", "_reason", "_key", "_raw")
NESTED = ("ARRAY", "MAP", "STRUCT")
# Text of a nested column: all digits of its times, and its nulls.
EXACT = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}
SUMS = ("count", "first", "last", "rows_low", "rows_high", "bytes_low", "bytes_high")
MASKED = 32  # nulls of so many columns are told in one number


def hashed(columns: Sequence[Column]) -> Column:
    """xxhash64 over values and over which of them are null: by itself it passes nulls over, so that values move up."""
    masks = []
    for at in range(0, len(columns), MASKED):
        flags = [column.isNull().cast("bigint") for column in columns[at : at + MASKED]]
        masks.append(reduce(lambda mask, flag: mask * 2 + flag, flags))
    return F.xxhash64(*masks, *columns)


def plain(topic: Topic) -> list[Column]:
    """The topic's columns as values that can be hashed."""
    return [
        F.to_json(field.name, EXACT) if field.type.upper().startswith(NESTED) else F.col(field.name)
        for field in topic.schema
    ]


def hourly(records: DataFrame, topic: Topic, *, decoded: bool = True, kept: bool = True) -> DataFrame:
    """Sums per `_partition`, `_cell`, `_ingest` and `_reason` of records, valid and refused ones: see `hashes`."""
    return totalled(hashes(records, topic, decoded=decoded, kept=kept), "_partition", "_cell", "_ingest", "_reason")


def hashes(records: DataFrame, topic: Topic, *, decoded: bool = True, kept: bool = True) -> DataFrame:
    """What is summed of records, valid and refused ones, in their `_cell`s (hours since 1970).

    A valid record's hour is that of its event time, a refused one's that of its broker time. `decoded`: the topic's
    columns are there, and `rows` sums what was decoded of a record; `kept`: `bytes` sums its key and value, which are
    most of what lies in a file. What is not asked for is not read.
    """
    place = [F.col(name) for name in PLACE]
    valid = F.col("_reason").isNull()
    refused = hashed([*place, F.col("_ingest"), F.col("_reason")])
    row = F.when(valid, hashed([*place, F.col("_ingest"), *plain(topic)])).otherwise(refused) if decoded else F.lit(0)
    time = F.when(valid, F.col(topic.event_time)).otherwise(F.col("_broker_time")) if decoded else F.col("_broker_time")
    return records.select(
        "_partition",
        "_offset",
        "_ingest",
        "_reason",
        whole(F.unix_millis(time), HOUR).alias("_cell"),
        row.cast("bigint").alias("_rows"),
        (hashed([*place, F.col("_key"), F.col("_raw")]) if kept else F.lit(0).cast("bigint")).alias("_bytes"),
    )


def totalled(hashed: DataFrame, *by: Column | str) -> DataFrame:
    """The sums of what `hashes` gives: in one step, where nobody wants those of each hour too."""
    return hashed.groupBy(*by).agg(
        F.count(F.lit(1)).alias("count"),
        F.min("_offset").alias("first"),
        F.max("_offset").alias("last"),
        *(half for name in ("rows", "bytes") for half in halves(name)),
    )


def halves(name: str) -> Iterable[Column]:
    """A hash's low and high 32 bits summed apart: neither sum leaves a BIGINT."""
    one = F.col(f"_{name}")
    yield F.sum(one.bitwiseAND(F.lit(0xFFFFFFFF).cast("bigint"))).alias(f"{name}_low")
    yield F.sum(F.shiftrightunsigned(one, 32)).alias(f"{name}_high")


def summed(hours: DataFrame, *by: Column | str) -> DataFrame:
    """Sums of sums."""
    kinds = {"first": F.min, "last": F.max}
    return hours.groupBy(*by).agg(*(kinds.get(name, F.sum)(name).alias(name) for name in SUMS))


def whole(number: Column, unit: int) -> Column:
    """How many whole units lie below a number, also below zero."""
    return F.call_function("div", number - F.pmod(number, F.lit(unit)), F.lit(unit))
