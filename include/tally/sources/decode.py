"""Record bytes to a row or a reason, the same in both layers: nothing here looks at a clock, only at the record.

A reason is one of: empty, not_utf8, not_json, not_one_object, wrong_type, no_time, time_unit, future, no_id,
missing:<column>.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tally.catalog.duration import millis, parse_duration
from tally.catalog.spec import Topic
from tally.settings import settings

# Epoch milliseconds lie between 1973 and 5138; smaller numbers are seconds, larger ones micro- or nanoseconds. Before
# 1970 they go back to 1900, as text does.
LEAST_MILLIS, MOST_MILLIS, OLDEST_MILLIS = 100_000_000_000, 100_000_000_000_000, -2_208_988_800_000
WHERE = ("_partition", "_offset", "_broker_time")
# Text has years from 1900 to 9999: one outside what Python's own times can say would stop every job that meets it.
DATE_AND_TIME = r"^\s*(19|[2-9]\d)\d{2}-\d{2}-\d{2}[T ]\d{2}:\d{2}"


def decode(raw: DataFrame, topic: Topic, *carried: str) -> DataFrame:
    """The topic's columns with `_partition`, `_offset`, `_broker_time`, `_raw` and `_reason` (null: valid).

    Columns of `raw` that are `carried` stand beside them as they are.
    """
    text = F.col("value").cast("string")
    # The record stands alone in an array, so that a second object in it is seen; the row is built once, by inline.
    wrapped = alone(text)
    wire = ", ".join(f"`{f.name}`: {'STRING' if f.type == 'TIMESTAMP' else f.type}" for f in topic.schema)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    options |= dict.fromkeys(("allowNonNumericNumbers", "allowSingleQuotes"), "false")
    parsed = F.from_json(wrapped, f"_records ARRAY<STRUCT<{wire}>>, _end INT, _corrupt STRING", options)
    rows = raw.select(
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_broker_time"),
        F.col("value").alias("_raw"),
        *carried,
        F.inline(F.array(parsed)),
    )
    record = F.get(F.col("_records"), F.lit(0))
    columns = [typed(record[f.name], f.type).alias(f.name) for f in topic.schema]
    checked = rows.select(*WHERE, "_raw", *carried, "_corrupt", "_records", "_end", *columns)
    return checked.select(*topic.columns, *WHERE, "_raw", *carried, reason(topic).alias("_reason"))


def alone(text: Column) -> Column:
    """The record's text as the only element of an array, with an end that is missing where it closed the whole."""
    return F.concat(F.lit('{"_records":['), text, F.lit('],"_end":1}'))


def typed(column: Column, kind: str) -> Column:
    """A column of the record as its declared type; a time is epoch milliseconds or ISO 8601, UTC without a zone."""
    if kind != "TIMESTAMP":
        return column
    number = column.try_cast("bigint")
    # A larger number would overflow and, ANSI mode being on, stop the stream.
    return F.when(number.between(OLDEST_MILLIS, MOST_MILLIS - 1), F.timestamp_millis(number)).when(
        column.rlike(DATE_AND_TIME), column.try_cast("timestamp")
    )


def reason(topic: Topic) -> Column:
    """Why a record is refused, the first cause that holds; null where it is valid."""
    text = F.col("_raw").cast("string")
    time, record = F.col(topic.event_time), F.get(F.col("_records"), F.lit(0))
    skew = millis(parse_duration(settings().skew, field="TALLY_SKEW"))
    latest = F.timestamp_millis(F.unix_millis("_broker_time") + F.lit(skew))
    broken = F.col("_corrupt").isNotNull() | F.col("_records").isNull()
    verdict = (
        F.when(F.col("_raw").isNull() | (F.length("_raw") == 0), "empty")
        .when(~F.is_valid_utf8(text), "not_utf8")
        .when(broken & F.try_parse_json(text).isNull(), "not_json")
        # Something behind an object, or JSON that is no object.
        .when(broken & (F.try_parse_json(alone(text)).isNull() | ~text.rlike(r"^\s*\{")), "not_one_object")
        .when(~broken & (F.size("_records") == 0) & ~text.rlike(r"\S"), "empty")
        .when(~broken & ((F.size("_records") != 1) | record.isNull()), "not_one_object")
        # Brackets that close the array early hide what follows; they need a look only where one stands in the record.
        .when(
            text.contains("]") & text.rlike(r"\}\s*\]\s*,") & (F.size(F.json_object_keys(alone(text))) != 2),
            "not_one_object",
        )
        .when(~broken & F.col("_end").isNull(), "not_json")
        .when(broken, "wrong_type")
        .when(record[topic.event_time].isNull(), "no_time")
    )
    for field in topic.schema:
        if field.type == "TIMESTAMP":
            given = record[field.name]
            number = given.try_cast("bigint")
            seconds = number.between(1 - LEAST_MILLIS, LEAST_MILLIS - 1)
            verdict = verdict.when(seconds | ~number.between(OLDEST_MILLIS, MOST_MILLIS - 1), "time_unit")
            verdict = verdict.when(given.isNotNull() & F.col(field.name).isNull(), "wrong_type")
    verdict = verdict.when(time > latest, "future")
    if topic.unique:
        verdict = verdict.when(F.col(topic.unique).isNull(), "no_id")
    for field in topic.schema:
        if field.required:
            verdict = verdict.when(F.col(field.name).isNull(), f"missing:{field.name}")
    return verdict
