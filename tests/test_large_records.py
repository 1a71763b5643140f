"""Records of ten megabytes pass through a small heap: Parquet buffers what it has not looked at, Java's serializer
what it has read since it was last told to forget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WRITE = """
import sys
from pyspark import StorageLevel
from pyspark.sql import functions as F
from tally.lake.session import session

spark = session("large", memory="900m")
made = "cast(concat(cast(id as string), repeat(cast(rand(1) as string), 560000)) as binary)"
kept = spark.range(0, 80, 1, 2).select("id", F.expr(made).alias("raw")).persist(StorageLevel.MEMORY_AND_DISK)
assert kept.count() == 80
for part in (0, 1):  # as an ingest does: what is refused, then what is good
    kept.where(f"id % 2 = {part}").write.format("delta").mode("append").save(sys.argv[1])
"""


@pytest.mark.long
def test_eighty_records_of_ten_megabytes_are_kept_and_written_with_900_mb(home: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path / "table")],
        env=os.environ, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    assert sum(file.stat().st_size for file in (tmp_path / "table").glob("*.parquet")) > 10_000_000
