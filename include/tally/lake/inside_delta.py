"""What Delta does not give in public, from inside its JVM classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from tally.lake import delta
from tally.lake.inside_spark import in_jvm

LOG, PATH = "org.apache.spark.sql.delta.DeltaLog", "org.apache.hadoop.fs.Path"


def commits(spark: SparkSession, path: str) -> Iterator[delta.Commit]:
    """The table's commits, newest first, without a look at the log's folder."""
    session: Any = spark._jsparkSession
    log = in_jvm(spark, LOG).forTable(session, path)
    files = log.logPath().getFileSystem(session.sessionState().newHadoopConf())
    for version in range(int(log.unsafeVolatileSnapshot().version()), -1, -1):
        file = in_jvm(spark, PATH)(log.logPath(), f"{version:020d}.json")
        stream = files.open(file)
        try:
            text = in_jvm(spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8")
        finally:
            stream.close()
        yield delta.from_entry({"version": version, **delta.commit_info(text)})


def forget(spark: SparkSession, where: str) -> None:
    """Have this process's Delta read a table's log anew: files of it were moved."""
    session: Any = spark._jsparkSession
    in_jvm(spark, LOG).invalidateCache(session, in_jvm(spark, PATH)(where))
