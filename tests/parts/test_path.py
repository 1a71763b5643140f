"""`tally check` says which path each good pipeline could take through a stream, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from definitions import line_of, write
from pyspark.sql import SparkSession

from tally.cli.check import check

SPREAD = 'rides.groupBy("window", "zone").agg(F.stddev("fare").alias("spread"))'
MOMENTS = "an aggregate whose parts are not added up value by value"
ROOT = "the operation Sqrt"
COUNTED = 'rides.groupBy("window", "zone").agg(F.approx_count_distinct("id").alias("n"))'


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path, body=COUNTED)
    plain = write(tmp_path / "other").joinpath("pipelines", "demand.py").read_text()
    (tmp_path / "pipelines" / "plain.py").write_text(plain.replace("def demand", "def plain"))
    spread = write(tmp_path / "third", body=SPREAD).joinpath("pipelines", "demand.py").read_text()
    (tmp_path / "pipelines" / "spread.py").write_text(spread.replace("def demand", "def spread"))
    monkeypatch.setenv("TALLY_CATALOG", str(tmp_path))
    return tmp_path


def test_the_path_is_told_below_each_pipeline(
    spark: SparkSession, catalogue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check()
    where = line_of(catalogue, "approx_count_distinct")
    reason = "what approx_count_distinct(id) keeps is a sketch, and sketches are not added up here"
    assert capsys.readouterr().out.splitlines() == [
        "ok     demand",
        f"       own: {reason} ({where})",
        "ok     plain",
        "       shared: combined from parts",
        "ok     spread",
        f"       shared: combined from parts; by Spark's plans: {MOMENTS}; by Spark's plans: {ROOT}",
    ]


def test_the_path_stands_in_fields_of_its_own(
    spark: SparkSession, catalogue: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(json=True)
    demand, plain, spread = json.loads(capsys.readouterr().out)["pipelines"]
    assert plain == {"pipeline": "plain", "errors": [], "path": "shared"}
    assert spread == {**plain, "pipeline": "spread", "by_spark": [MOMENTS, ROOT]}
    assert set(demand) == {"pipeline", "errors", "path", "reason", "where"}
    assert (demand["errors"], demand["path"]) == ([], "own") and "sketch" in demand["reason"]
