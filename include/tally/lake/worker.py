"""The parent of Spark's Python workers (`spark.python.daemon.module`): workers are forked from it with all imported."""

import duckdb  # noqa: F401
import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.sql.pandas.serializers  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
