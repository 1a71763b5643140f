"""Tables as this process's Spark makes and changes them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tally.lake import delta

# An append takes 0.06 ms longer for each commit since the checkpoint that the table was opened from: after a day of one
# a second, five seconds. To open it takes some 10 ms; the keeper writes a checkpoint every hundred micro-batches.
READ_ANEW_EVERY = 25
LOCKS: dict[str, RLock] = {}
# Columns that make the same table whoever makes it; of others, and of names that it refuses, Spark is to say.
PLAIN = re.compile(r"boolean|byte|short|integer|long|float|double|string|binary|date|timestamp|decimal\(\d+,\d+\)")
PLAIN_NAME = re.compile(r"[^ ,;{}()\n\t=]+")


def make_table(spark: SparkSession, where: str, schema: StructType, properties: dict[str, str]) -> None:
    """Create an empty Delta table of these columns, partitioned by `_date`, unless it is there.

    Without Spark where that makes the same one: it takes a fifth of a second, and some seconds for its first table.
    """
    columns = schema.toNullable().json()
    if "://" not in where and is_plain(json.loads(columns)):
        given, kind = {**defaults(spark), **properties}, Schema.from_json(columns)
        DeltaTable.create(where, kind, mode="ignore", partition_by="_date", configuration=given)
        return
    ddl = spark.createDataFrame([], schema)._jdf.schema().asNullable().toDDL()  # Python's own leaves quotes out
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{where}` ({ddl}) USING delta PARTITIONED BY (_date) "
        f"TBLPROPERTIES ({listed(properties)})"
    )


@cache
def defaults(spark: SparkSession) -> dict[str, str]:
    """The properties that Spark gives to each new table."""
    prefix = "spark.databricks.delta.properties.defaults."
    return {f"delta.{name.removeprefix(prefix)}": v for name, v in spark.conf.getAll.items() if name.startswith(prefix)}


def is_plain(kind: Any) -> bool:
    """Whether a type, as Spark writes it in JSON, has nothing in it but plain columns of plain names."""
    if isinstance(kind, str):
        return PLAIN.fullmatch(kind) is not None
    if kind["type"] == "struct":
        names = [field["name"] for field in kind["fields"]]
        named = all(map(PLAIN_NAME.fullmatch, names)) and len({name.lower() for name in names}) == len(names)
        return bool(names) and named and all(is_plain(field["type"]) for field in kind["fields"])
    inner = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    return kind["type"] in ("array", "map") and all(map(is_plain, inner))


def set_properties(spark: SparkSession, path: str, wanted: dict[str, str]) -> None:
    """Give a table that has other ones these properties; in one commit, and only where something differs."""
    table = delta.table(path)
    known = table.metadata().configuration if table else {}
    changed = {name: value for name, value in wanted.items() if known.get(name) != value}
    if changed:
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed(changed)})")


def append(rows: DataFrame, where: str, words: str, **options: str | int) -> None:
    """Add rows to a table in one commit that says these words; the options are those of Delta's writer."""
    rows.write.format("delta").mode("append").options(**options).option("userMetadata", words).save(where)


def append_arrow(rows: pa.Table, table: DeltaTable, words: str) -> int:
    """Add rows to a table without Spark, in a thirtieth of the time; the version of the commit.

    Spark's own commits to a table on a local disk look first and write then: see `alone`.
    """
    with alone(table.table_uri):
        before = int(table.version())
        write_deltalake(
            table, rows, mode="append", commit_properties=CommitProperties(custom_metadata={"userMetadata": words})
        )
    version = int(table.version())
    if before // READ_ANEW_EVERY != version // READ_ANEW_EVERY:
        read_anew(table)
    return version


def read_anew(table: DeltaTable) -> None:
    """Have an open table know its log from the newest checkpoint on: it goes through all commits since it was opened.

    delta-rs has no other way to do so in place than to open it again; to load a version that it has does nothing.
    """
    table.__init__(table.table_uri)


def sweep(where: str, hours: int) -> int:
    """Delete the files of a local table that are so old, and that no retained version names; the number of them.

    It commits nothing, so it may run beside whoever writes the table: see `alone`. Spark's VACUUM takes some seconds.
    """
    table, gone = DeltaTable(where), 0
    for file in table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
        with suppress(FileNotFoundError):
            Path(where, file).unlink()
            gone += 1
    return gone


@contextmanager
def alone(where: str) -> Iterator[None]:
    """While one of this process's two writers commits to a table, the other does not: it would not see the first."""
    path = unquote(where.removeprefix("file://").rstrip("/"))
    with LOCKS.setdefault(path, RLock()):
        yield


def replace(rows: DataFrame, where: str, words: str, *, only: str = "", **options: str | int) -> None:
    """Put rows in the place of all that a table holds, or of those that fulfil a condition, in one commit."""
    chosen = {**options, "replaceWhere": only} if only else options
    rows.write.format("delta").mode("overwrite").options(**chosen).option("userMetadata", words).save(where)


def listed(properties: dict[str, str]) -> str:
    """Table properties as SQL has them."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
