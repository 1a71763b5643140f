"""Spark's Python processes import the installed PySpark, compiled before, and not the archive that Spark puts first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tally.lake.session import python, spark_home


def test_a_worker_has_the_installed_one(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(where, "file STRING").collect()
    assert Path(row.file) == spark_home() / "__init__.py"


@pytest.mark.parametrize("path", ["", "/a:{archives}", "{archives}:/a:/b c", "{archives}"])
def test_all_else_on_the_path_stays(path: str) -> None:
    library = spark_home() / "python" / "lib"
    archives = ":".join(str(one) for one in sorted(library.glob("*.zip")))
    assert archives.count(":") == 1
    env = {**os.environ, **python(), "PYTHONPATH": path.format(archives=archives)}
    words = [
        env["PYSPARK_PYTHON"],
        "-c",
        "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])",
        "an argument",
    ]
    said = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    left = [one for one in path.format(archives="").split(":") if one]
    assert said.strip() == f"{':'.join(left)} ['an argument']".strip()
