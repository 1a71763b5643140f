"""Groups are followed whole and in order, also where one lies in several Arrow batches, and nulls are a key."""

from __future__ import annotations

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from tally.kinds.groups import follow_groups, group_starts

ROWS = [(key, step, at) for key in ("a", "b", None, "c") for step in (1, 2) for at in range(5)]


@pytest.mark.parametrize("batch", ["1", "3", "10000"])
def test_each_group_is_followed_once_whole_and_in_order(spark: SparkSession, batch: str) -> None:
    def follow(group: pd.DataFrame) -> pd.DataFrame:
        order = group["at"].tolist()
        assert group[["key", "step"]].drop_duplicates().shape[0] == 1
        return pd.DataFrame({"key": [group["key"].iloc[0]], "step": [group["step"].iloc[0]], "seen": [order]})

    earlier = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", batch)
    try:
        rows = spark.createDataFrame(list(reversed(ROWS)), "key string, step int, at int")
        found = follow_groups(rows, ["key", "step"], ["at"], follow, "key string, step int, seen array<int>").collect()
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", earlier or "10000")
    assert len(found) == 8
    assert {(row["key"], row["step"]): row["seen"] for row in found} == {
        (key, step): [0, 1, 2, 3, 4] for key in ("a", "b", None, "c") for step in (1, 2)
    }


def test_no_rows_are_no_groups(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "key string, at int")
    assert follow_groups(empty, ["key"], ["at"], lambda group: group, "key string, at int").count() == 0


def test_a_group_starts_where_any_of_its_columns_changes() -> None:
    rows = pd.DataFrame({"a": ["x", "x", None, None, "y"], "b": [1, 2, 2, 2, 2]})
    assert group_starts(rows, ["a", "b"]).tolist() == [0, 1, 2, 4]
