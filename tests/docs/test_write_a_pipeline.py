"""docs/write_a_pipeline.md does what it says: one new file, taken from the page, and nothing else."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

import definitions
import pytest
from pyspark.sql import SparkSession

from tally.base.duration import human
from tally.base.settings import REPO
from tally.catalog.cron import minute_of
from tally.catalog.load import load
from tally.catalog.purity import check_purity
from tally.catalog.schedule import every
from tally.catalog.spec import Pipeline
from tally.orchestration import graph
from tally.orchestration.nodes import Schedule


@pytest.fixture(scope="module")
def fifth(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """The page's pipeline; tests/integration/test_end_to_end.py runs it from Kafka to its seals."""
    file = definitions.with_the_pipeline_of_the_page(tmp_path_factory.mktemp("catalogue"))
    loaded = load(file.parents[1])
    assert set(loaded.pipelines) == set(load(REPO / "spark").pipelines) | {file.stem}
    return loaded.pipelines[file.stem]


def test_the_file_declares_what_the_page_says(fifth: Pipeline) -> None:
    assert (fifth.name, fifth.key, fifth.window.word) == ("tips_by_zone", ("pickup_zone",), "tumbling")
    assert human(fifth.window.size) == "5 minutes"
    assert [topic.name for topic in fifth.reads] == ["rides"]
    assert fifth.doc


def test_it_is_pure_and_has_a_version_of_its_own(fifth: Pipeline) -> None:
    check_purity(fifth, Path(fifth.file).parents[1])
    assert re.fullmatch(r"v[0-9a-f]{12}", fifth.version)
    assert fifth.version not in {other.version for other in load(REPO / "spark").pipelines.values()}


def test_its_dag_follows_from_it(fifth: Pipeline) -> None:
    made = graph.batch(fifth, every(fifth))
    assert made.dag_id == "batch__tips_by_zone"
    assert [node.id for node in made.nodes] == ["wait", "restate", "compare", "judge", "seal"]
    assert made.nodes[0].archives == ("rides",)
    assert {name for node in made.nodes for name in node.outlets} == {"batch/tips_by_zone", "served/tips_by_zone"}
    assert made.schedule == Schedule(kind="interval", of=f"{minute_of('tips_by_zone')} * * * *")


def test_spark_gives_the_columns_that_the_page_names(fifth: Pipeline, spark: SparkSession) -> None:
    from tally.checks.definition import check

    assert check(spark, fifth).columns == ["window_start", "window_end", "pickup_zone", "tips", "largest"]


def test_its_example_of_single_events_is_one(tmp_path: Path, spark: SparkSession) -> None:
    from tally.checks.definition import check

    (found,) = re.findall(r"^    @pipeline.*?events\(.*?(?=^\S)", definitions.PAGE.read_text(), re.M | re.S)
    head = "from pyspark.sql import DataFrame\nfrom pyspark.sql import functions as F\nfrom topics import rides\n\n"
    shutil.copytree(REPO / "spark", tmp_path / "spark", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "spark" / "pipelines" / "generous_rides.py"
    file.write_text(f"{head}from tally import events, pipeline\n\n\n{textwrap.dedent(found)}")
    known = load(tmp_path / "spark")
    assert not known.broken
    columns = check(spark, known.pipelines["generous_rides"]).columns
    assert columns == ["window_start", "window_end", "ride_id", "cab_id", "share"]


def test_the_page_names_the_file_where_the_catalogue_looks(fifth: Pipeline) -> None:
    assert Path(fifth.file).parent.name == "pipelines"
    assert Path(fifth.file).parents[2] / "spark" / "pipelines" / f"{fifth.name}.py" == Path(fifth.file)
