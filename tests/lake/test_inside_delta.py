"""What is taken from inside Delta's own classes still means what it did; a new version that changes it fails here."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tally.lake import delta, inside_delta, tables


def test_commits_are_read_newest_first_with_their_words(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "table")
    rows = spark.range(3).withColumn("_date", F.current_date())
    tables.make_table(spark, where, rows.schema, {"delta.checkpointInterval": "50"})
    for number in range(2):
        words = delta.words("micro-batch", batch=number)
        rows.write.format("delta").mode("append").option("userMetadata", words).save(where)
    found = list(inside_delta.commits(spark, where))
    assert [(one.version, one.words.get("batch")) for one in found] == [(2, 1), (1, 0), (0, None)]
    assert [(one.version, one.words) for one in found] == [(one.version, one.words) for one in delta.commits(where)]


def test_a_table_whose_files_were_moved_is_read_anew(spark: SparkSession, tmp_path: Path) -> None:
    where, other = tmp_path / "table", tmp_path / "other"
    for path, count in ((where, 3), (other, 5)):
        spark.range(count).write.format("delta").save(str(path))
    assert spark.read.format("delta").load(str(where)).count() == 3
    where.rename(tmp_path / "aside")
    other.rename(where)
    inside_delta.forget(spark, str(where))
    assert spark.read.format("delta").load(str(where)).count() == 5


def test_properties_are_set_only_where_they_differ(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "table")
    wanted = {"delta.checkpointInterval": "77"}
    tables.make_table(spark, where, spark.range(1).withColumn("_date", F.current_date()).schema, wanted)
    tables.set_properties(spark, where, wanted)
    assert delta.version(where) == 0
    tables.set_properties(spark, where, {"delta.checkpointInterval": "78"})
    assert delta.version(where) == 1


def test_names_that_need_quotes_are_quoted_inside_structs_too(spark: SparkSession, tmp_path: Path) -> None:
    where = str(tmp_path / "table")
    fields = F.struct(F.lit(1).alias("a"), F.lit("x").alias("b-c")).alias("odd-name")
    rows = spark.range(2).select("id", fields, F.current_date().alias("_date"))
    tables.make_table(spark, where, rows.schema, {"delta.checkpointInterval": "50"})
    rows.write.format("delta").mode("append").save(where)
    found = spark.read.format("delta").load(where)
    assert found.count() == 2 and found.columns == ["id", "odd-name", "_date"]
    assert all(field.nullable for field in found.schema.fields)
