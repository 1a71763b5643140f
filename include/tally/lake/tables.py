"""Tables as this process's Spark makes and changes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from tally.lake import delta

LOCKS: dict[str, RLock] = {}


def make_table(spark: SparkSession, where: str, schema: DataFrame, properties: dict[str, str]) -> None:
    """Create an empty Delta table of a frame's columns, partitioned by `_date`, unless it is there."""
    columns = schema._jdf.schema().asNullable().toDDL()  # of its own, Python leaves out what must be quoted
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{where}` ({columns}) USING delta PARTITIONED BY (_date) "
        f"TBLPROPERTIES ({listed(properties)})"
    )


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
        write_deltalake(
            table, rows, mode="append", commit_properties=CommitProperties(custom_metadata={"userMetadata": words})
        )
    return int(table.version())


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
