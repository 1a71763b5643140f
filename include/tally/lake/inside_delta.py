"""What Delta does not give in public, from inside its JVM classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from tally.lake import delta


def commits(spark: SparkSession, path: str) -> Iterator[delta.Commit]:
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
        yield delta.from_entry({"version": version, **delta.commit_info(text)})


def forget(spark: SparkSession, where: str) -> None:
    """Have this process's Delta read a table's log anew: files of it were moved."""
    jvm: Any = spark.sparkContext._jvm
    session: Any = spark._jsparkSession
    jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(session, jvm.org.apache.hadoop.fs.Path(where))
