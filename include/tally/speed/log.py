"""The Delta log of a table that this process writes: read by its own Delta, and kept as short as a reader can bear.

Each append lists the log's folder: two days of a micro-batch a second make it 3.4 s instead of 0.15 (`bench log`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tally import lake
from tally.failpoints import failpoint

KEPT_MS = 3_600_000
PROPERTIES = {
    # Both are made beside the micro-batches, by `shorten`; in a commit they would hold up its rows, for seconds.
    "delta.checkpointInterval": "1000000",
    "delta.enableExpiredLogCleanup": "false",
    "delta.logRetentionDuration": f"interval {KEPT_MS // 60_000} minutes",
    # Not above the log's. Files are kept for a week all the same: see keeper.vacuum_when_due.
    "delta.deletedFileRetentionDuration": f"interval {KEPT_MS // 60_000} minutes",
    "delta.dataSkippingNumIndexedCols": "4",
}


def commits(spark: SparkSession, path: str) -> Iterator[lake.Commit]:
    """The table's commits, newest first, without a look at the log's folder."""
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, path)
    files = log.logPath().getFileSystem(session.sessionState().newHadoopConf())
    for version in range(int(log.unsafeVolatileSnapshot().version()), -1, -1):
        file = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
        stream = files.open(file)
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        yield lake.from_entry({"version": version, **lake.commit_info(text)})


def shorten(path: str) -> None:
    """Write the log's checkpoint, and drop the entries before it that are older than the table keeps them."""
    table = DeltaTable(path)
    failpoint("speed.before_shorten")
    table.create_checkpoint()
    table.cleanup_metadata()
    failpoint("speed.after_shorten")


def set_properties(spark: SparkSession, path: str, wanted: dict[str, str]) -> None:
    """Give a table that has other ones these properties; in one commit, and only where something differs."""
    table = lake.table(path)
    known = table.metadata().configuration if table else {}
    changed = {name: value for name, value in wanted.items() if known.get(name) != value}
    if changed:
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed(changed)})")


def listed(properties: dict[str, str]) -> str:
    """Table properties as SQL has them."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
