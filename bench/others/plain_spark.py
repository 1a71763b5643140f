"""A Spark session as the pages of Spark and Delta have it, with Tally's jars and heap and none of its settings."""

from __future__ import annotations

import os
from typing import Any

from tally.base.settings import settings


def session() -> Any:
    """One of all cores of this machine."""
    from pyspark.sql import SparkSession

    run = settings()
    jars = sorted((run.jars / "spark").glob("*.jar"))
    conf = {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.memory": run.spark_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[*]").appName("peer")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
