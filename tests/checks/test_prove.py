"""The prover runs a function over random events in both layers, and finds what no rule on its plan would."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import world
from definitions import edit, write
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, IntegerType, LongType, StructField, StructType, TimestampType

from tally.base.errors import DefinitionError, TallyError
from tally.catalog.load import load
from tally.catalog.spec import Pipeline
from tally.checks.prove import prove
from tally.checks.sample import moment, sample
from tally.cli.check import check

GROUPED = 'rides.groupBy("window", "zone")'
# What no rule on a plan sees: a function over batches of events that looks at all of its batch.
CENTRED = """RATE = 2
import pandas as pd
from pyspark.sql.types import DoubleType


def centred(fare: pd.Series) -> pd.Series:
    return fare - fare.mean()


CENTRED = F.pandas_udf(centred, DoubleType())
"""


def refused(spark: SparkSession, pipeline: Pipeline, seed: int = 1) -> DefinitionError:
    with pytest.raises(DefinitionError) as raised:
        prove(spark, pipeline, seed)
    assert raised.value.pipeline == "demand" and raised.value.cure
    assert f"seed {seed}" in raised.value.message
    return raised.value


def defined(folder: Path, function: Callable[[DataFrame], DataFrame], **more: Any) -> Pipeline:
    """A pipeline with a function that loading it would not let pass."""
    return dataclasses.replace(load(write(folder, **more)).pipelines["demand"], function=function)


@pytest.mark.parametrize(
    "window", ['hopping("2 minutes", by="1 minute")', pytest.param('session("1 minute")', marks=pytest.mark.long)]
)
def test_a_good_definition_is_proved_and_its_proof_says_of_what(
    spark: SparkSession, tmp_path: Path, window: str
) -> None:
    folder = write(tmp_path, window=window)
    edit(folder, 'event_time="at"', 'event_time="at", unique="id"', file="topics.py")
    proof = prove(spark, load(folder).pipelines["demand"], 7)
    assert proof.seed == 7 and proof.events > 240 and proof.micro_batches >= 6 and proof.rows > 20


def test_a_function_of_python_at_the_top_of_the_file_is_proved_and_one_that_looks_at_its_batch_is_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write(
        tmp_path, body='rides.withColumn("f", MADE("fare")).groupBy("window", "zone").agg(F.max("f").alias("x"))'
    )
    made = "import pandas as pd\nfrom pyspark.sql.types import DoubleType\n\n\ndef made(v: pd.Series) -> pd.Series:\n"
    edit(folder, "RATE = 2", f"{made}    return v * 2\n\n\nMADE = F.pandas_udf(made, DoubleType())")
    assert prove(spark, load(folder).pipelines["demand"], 7).rows > 5
    edit(folder, "return v * 2", "return v - v.mean()")
    assert "differs from itself" in refused(spark, load(folder).pipelines["demand"]).message


def test_a_join_is_proved(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "topics.py").write_text(world.TOPICS.format(prefix="", suffix="", unique=', unique="id"'))
    text = world.JOIN.format(name="demand", suffix="", window=world.WINDOWS["join"])
    (tmp_path / "pipelines" / "demand.py").write_text(text)
    assert prove(spark, load(tmp_path).pipelines["demand"], 7).rows > 5


def test_chance_in_a_udf_is_found(spark: SparkSession, tmp_path: Path) -> None:
    chance = F.udf(lambda fare: random.random(), "double")
    made = defined(tmp_path, lambda rides: rides.groupBy("window", "zone").agg(F.sum(chance("fare")).alias("x")))
    error = refused(spark, made)
    assert "differs from itself" in error.message and "zone=" in error.message and "window 2026-01-05" in error.message


def test_an_order_that_is_not_named_is_found(spark: SparkSession, tmp_path: Path) -> None:
    made = defined(tmp_path, lambda rides: rides.groupBy("window", "zone").agg(F.first("fare", True).alias("x")))
    assert "differs" in refused(spark, made).message


def test_a_row_that_the_stream_would_have_to_take_back_is_found(spark: SparkSession, tmp_path: Path) -> None:
    made = defined(
        tmp_path,
        lambda rides: (
            rides.groupBy("window", "zone").agg(F.count("*").alias("n"), F.sum("id").alias("x")).where("x < 5")
        ),
    )
    error = refused(spark, made)
    assert "the stream differs from the batch" in error.message and "no row" in error.message
    assert "before groupBy" in (error.cure or "")


def test_a_key_that_is_too_narrow_is_found(spark: SparkSession, tmp_path: Path) -> None:
    made = defined(tmp_path, lambda rides: rides.groupBy("window", "zone", "id").agg(F.max("fare").alias("x")))
    error = refused(spark, made)
    assert "several rows" in error.message and "columns of key=" in (error.cure or "")


def test_an_event_that_stops_the_function_is_found(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path, body=f'{GROUPED}.agg(F.sum(F.col("fare") / F.col("id")).alias("x"))')
    error = refused(spark, load(folder).pipelines["demand"])
    assert "DIVIDE_BY_ZERO" in error.message and "try_divide" in (error.cure or "")


@pytest.mark.parametrize("lateness", ["1 minute", "0 seconds"])
def test_events_are_typed_the_same_for_a_seed_and_none_is_late(tmp_path: Path, lateness: str) -> None:
    folder = write(tmp_path, lateness=lateness, body='rides.where("fare > 77").groupBy("window", "zone").count()')
    edit(folder, 'event_time="at"', 'event_time="at", unique="id"', file="topics.py")
    pipeline = load(folder).pipelines["demand"]
    types = {"id": LongType(), "zone": IntegerType(), "fare": DoubleType(), "at": TimestampType()}
    shape = StructType([StructField(name, kind) for name, kind in types.items()])
    drawn = sample(pipeline, [shape], 3)
    assert drawn == sample(pipeline, [shape], 3) != sample(pipeline, [shape], 4)
    (chunks,) = drawn.topics
    ids = [row["id"] for chunk in chunks for row in chunk]
    assert len(set(ids)) < len(ids), "copies"
    assert 77.0 in [row["fare"] for chunk in chunks for row in chunk], "what the source asks for"
    seen: set[int] = set()
    newest = moment(0)
    for chunk in chunks:
        fresh = [row["at"] for row in chunk if row["id"] not in seen]
        assert all(time > newest - pipeline.reads[0].lateness for time in fresh)
        newest = max([newest, *fresh])
        seen |= {row["id"] for row in chunk}
    assert chunks[-1][0]["at"] > moment(drawn.end)


def test_the_command_says_what_was_proved_and_by_which_seed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    bad = (tmp_path / "pipelines" / "demand.py").read_text().replace("def demand", "def centred")
    bad = bad.replace('F.sum(taxed("fare"))', 'F.max(CENTRED("fare"))').replace("RATE = 2", CENTRED)
    (tmp_path / "pipelines" / "centred.py").write_text(bad)
    monkeypatch.setenv("TALLY_CATALOG", str(tmp_path))
    with pytest.raises(typer.Exit):
        check(prove=True, seed=5)
    said = capsys.readouterr()
    assert "--seed 5" in said.err
    assert "ok     demand: proved, " in said.out and "wrong  centred" in said.out and "differs from itself" in said.out


@pytest.mark.parametrize("options", [{"prove": True, "no_spark": True}, {"prove": True, "setup": True}, {"seed": 5}])
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(TallyError):
        check(**options)
