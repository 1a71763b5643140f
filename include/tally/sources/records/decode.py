"""Record bytes to a row or a reason, the same in both layers: nothing here looks at a clock, only at the record.

A reason is one of: empty, not_utf8, not_json, not_one_object, wrong_type, no_time, time_unit, future, no_id,
missing:<column>, not_finite:<column>.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from tally.base.duration import millis, parse_duration
from tally.base.settings import settings
from tally.catalog.spec import Topic
from tally.sources.records import wire
from tally.sources.records.plain import LONGEST, Reader

WHERE = ("_partition", "_offset", "_broker_time")
PLAIN = "_plain"
# From so many records on Python's workers read the plain ones: a record saves two millionths of a CPU second, and the
# first workers of a JVM cost one or two, which a job pays once and a driver has paid long ago.
MANY = 250_000
# Only JSON as its standard has it; what Spark's reader allows beyond that is two meanings for one record.
STRICT = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"} | dict.fromkeys(
    ("allowNonNumericNumbers", "allowSingleQuotes"), "false"
)
# \ud800 to \udfff come in pairs; half of one is no letter, and every such half would be read as the same "?".
HALF_A_LETTER = (
    r"(?<!\\)(?:\\\\)*+(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)
# A decimal with a large exponent is written out before it is found to be too large: 1e999999999 takes minutes, and a
# gigabyte. What may hold one, or a decimal as text with a comma, gets a second look; hardly a record does. It is found
# in two steps, of which the first is the cheaper one by half.
MAYBE, SUSPECT, TEXTS = r"[eE,][+-]?\d", r"[eE][+-]?\d{4}|,\d", r'"(?:[^"\\]++|\\.)*+"'
HUGE, HUGE_TEXT = r"\d[eE][+-]?\d{4}", r'"[+-]?[\d.]+[eE][+-]?\d{4,}"'


def decode(raw: DataFrame, topic: Topic, *carried: str, together: bool = False) -> DataFrame:
    """The topic's columns with `_partition`, `_offset`, `_broker_time`, `_raw` and `_reason` (null: valid).

    Columns of `raw` that are `carried` stand beside them as they are. Where plain records are read `together`, the
    reference reads what is left; it would say the same of all.
    """
    reader = Reader(topic.schema)
    if not together or not reader.covers:
        return reference(raw, topic, *carried)
    read = F.arrow_udf(reader.batches, topic.ddl)
    short = F.when(F.octet_length("value") <= LONGEST, F.col("value"))  # thousands go to a worker at once
    return decoded(raw.withColumn(PLAIN, read(short)), topic, *carried, plain=True)


def are_many(records: int) -> bool:
    """Whether it pays to have Python's workers read the plain ones of so many records."""
    return records >= MANY


def reference(raw: DataFrame, topic: Topic, *carried: str) -> DataFrame:
    """What decode gives, by Spark's expressions alone."""
    return decoded(raw, topic, *carried)


def decoded(raw: DataFrame, topic: Topic, *carried: str, plain: bool = False) -> DataFrame:
    """The rows of records; `plain`: some of them were read already, and only the others are read by the reference."""
    kind = StructType.fromDDL(topic.ddl)
    text, sure, also = F.col("value").cast("string"), F.lit(False), []
    if plain:
        text, sure, also = F.when(F.col(PLAIN).isNull(), text), F.col(PLAIN).isNotNull(), [PLAIN]
    parsed = parse(readable(text, kind), wire.read_as(kind))
    rows = raw.select(
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_broker_time"),
        F.col("value").alias("_raw"),
        *carried,
        *also,
        F.inline(F.array(parsed)),  # the row is built once
    )
    record = F.get(F.col("_records"), F.lit(0))
    columns = {f.name: wire.typed(record[f.name], f.dataType) for f in kind.fields}
    if plain:
        columns = {name: F.coalesce(F.col(PLAIN)[name], value) for name, value in columns.items()}
    named = [value.alias(name) for name, value in columns.items()]
    checked = rows.select(*WHERE, "_raw", *carried, sure.alias("_sure"), "_corrupt", "_records", *named)
    reason = F.coalesce(F.when(~F.col("_sure"), broken(topic, kind)), lacking(topic))
    return checked.select(*topic.columns, *WHERE, "_raw", *carried, reason.alias("_reason"))


def parse(text: Column, kind: DataType) -> Column:
    """The records that stand in the text, `_records`; `_corrupt` is null where each is of that type."""
    shape = StructType().add("_records", ArrayType(kind)).add("_corrupt", StringType())
    return F.from_json(in_array(text), shape, STRICT)


def in_array(text: Column) -> Column:
    """The record's text as what should be the only element of an array, so that a second one in it is seen."""
    return F.concat(F.lit('{"_records":['), text, F.lit("]}"))


def breaks_out(text: Column) -> Column:
    """Whether a text that is read in an array is no object, or closes the array behind one and hides what follows.

    It needs a `]` behind a whole object for that: where not an array but an object stands around it, that is no JSON.
    """
    begins = text.startswith("{") | text.rlike(r"^\s*\{")
    closed = reduce(or_, (text.contains(f"{before}]") for before in "} \t\n\r"))  # a fifth of what an rlike costs
    in_object = F.concat(F.lit('{"_record":'), text, F.lit("}"))
    return ~begins | (text.contains("]") & closed & F.json_object_keys(in_object).isNull())


def readable(text: Column, kind: StructType) -> Column:
    """The text, or null where reading its decimals would take for ever, or give another number."""
    decimals = StructType(
        [f for f in kind.fields if wire.anywhere(F.lit(None), f.dataType, wire.no_number) is not None]
    )
    as_texts = parse(text, wire.read_as(decimals, as_text=True))
    found = wire.anywhere(as_texts["_records"], ArrayType(decimals), wire.no_number)
    if found is None:
        return text
    # A key that stands there twice is read twice; of what is hidden, only the last is seen here.
    hidden = text.rlike(HUGE_TEXT) & (breaks_out(text) | F.try_parse_json(text).isNull())
    bad = F.regexp_replace(text, TEXTS, "").rlike(HUGE) | as_texts["_corrupt"].isNotNull() | hidden
    return F.when(~text.rlike(MAYBE) | ~text.rlike(SUSPECT) | ~(bad | F.coalesce(found, F.lit(False))), text)


def broken(topic: Topic, kind: StructType) -> Column:
    """Why a record is no object of the declared types, the first cause that holds; null where it is one."""
    text = F.col("_raw").cast("string")
    record = F.get(F.col("_records"), F.lit(0))
    corrupt = F.col("_corrupt").isNotNull() | F.col("_records").isNull()
    verdict = (
        F.when(F.col("_raw").isNull() | (F.length("_raw") == 0), "empty")
        .when(~F.is_valid_utf8(text), "not_utf8")
        .when(corrupt & F.try_parse_json(text).isNull(), "not_json")
        # Something behind an object, or JSON that is no object.
        .when(corrupt & (F.try_parse_json(in_array(text)).isNull() | ~text.rlike(r"^\s*\{")), "not_one_object")
        .when(~corrupt & (F.size("_records") == 0) & ~text.rlike(r"\S"), "empty")
        .when(~corrupt & ((F.size("_records") != 1) | record.isNull()), "not_one_object")
        .when(breaks_out(text), "not_one_object")
        .when(corrupt, "wrong_type")
        .when(text.contains("\\") & text.rlike(HALF_A_LETTER), "not_utf8")
        .when(record[topic.event_time].isNull(), "no_time")
    )
    for field in kind.fields:
        for found, why in faults(record[field.name], field):
            verdict = verdict.when(found, why)
    return verdict


def faults(given: Column, field: StructField) -> Iterator[tuple[Column, str]]:
    """What a column's value can be refused for, and the reason."""
    kind, made = field.dataType, F.col(field.name)
    # A value that has been made once is looked at as such: the more code a record runs through, the less of it the JVM
    # compiles. It is another one than what was given only where its type says so.
    lost = given.isNotNull() & made.isNull() if type(kind) in wire.KEPT_WHOLE else None
    for found, why in (
        (wire.anywhere(given, kind, wire.time_unit), "time_unit"),
        (wire.anywhere(given, kind, wire.no_such_value) if lost is None else lost, "wrong_type"),
        (wire.anywhere(made, kind, wire.not_finite), f"not_finite:{field.name}"),
    ):
        if found is not None:
            yield found, why


def lacking(topic: Topic) -> Column:
    """What a whole record of the right types is refused for: a time that is none, and what is missing."""
    skew = millis(parse_duration(settings().skew, field="TALLY_SKEW"))
    latest = F.timestamp_millis(F.unix_millis("_broker_time") + F.lit(skew))
    time = F.col(topic.event_time)
    verdict = F.when(time.isNull(), "no_time").when(time > latest, "future")
    if topic.unique:
        verdict = verdict.when(F.col(topic.unique).isNull(), "no_id")
    for field in topic.schema:
        if field.required:
            verdict = verdict.when(F.col(field.name).isNull(), f"missing:{field.name}")
    return verdict
