"""A version is a pipeline's meaning: it changes when the meaning does, and with nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import definitions
import pytest

from tally.catalog.fingerprint import contract
from tally.catalog.load import load

CONSTANT = "RATE = 2"


def version(folder: Path) -> str:
    return load(folder).pipeline("demand").version


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return definitions.write(tmp_path / "one")


def test_it_is_short_and_can_name_a_table(folder: Path) -> None:
    assert re.fullmatch("v[0-9a-f]{12}", version(folder))


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ('tumbling("1 minute")', ["tumbling", 60_000, 60_000]),
        ('hopping("15 minutes", by="1 minute")', ["hopping", 900_000, 60_000]),
        ('session("30 minutes")', ["session", 1_800_000, 1_800_000]),
    ],
)
def test_a_window_enters_it_by_the_same_words_as_ever(tmp_path: Path, window: str, words: list[object]) -> None:
    """Other words would give each pipeline a new version, with tables and a stream of its own."""
    assert contract(load(definitions.write(tmp_path, window=window)).pipeline("demand"))["window"] == words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("F.sum(taxed", "F.max(taxed", id="the function's body"),
        pytest.param("RATE = 2", "RATE = 3", id="a constant that it uses"),
        pytest.param("RATE = 2", "RATE = 2.0", id="a constant's type"),
        pytest.param("* RATE", "+ RATE", id="a function that it calls"),
        pytest.param('tumbling("1 minute")', 'tumbling("2 minutes")', id="the window's size"),
        pytest.param('tumbling("1 minute")', 'session("1 minute")', id="the window's kind"),
        pytest.param('tumbling("1 minute")', 'hopping("1 minute", by="30 seconds")', id="the window's slide"),
        pytest.param('key="zone"', 'key=["zone", "id"]', id="the key"),
    ],
)
def test_it_changes_with_the_meaning(folder: Path, old: str, new: str) -> None:
    before = version(folder)
    definitions.edit(folder, old, new)
    assert version(folder) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('lateness="1 minute"', 'lateness="2 minutes"', id="lateness"),
        pytest.param("fare DOUBLE", "fare FLOAT", id="a type"),
        pytest.param("fare DOUBLE", "fare DOUBLE NOT NULL", id="a column that must be there"),
        pytest.param('event_time="at"', 'event_time="at", unique="id"', id="the unique id"),
        pytest.param('topic("rides"', 'topic("trips"', id="the topic's name"),
    ],
)
def test_it_changes_with_what_the_topic_promises(folder: Path, old: str, new: str) -> None:
    before = version(folder)
    definitions.edit(folder, old, new, file="topics.py")
    assert version(folder) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('"""Demand."""', '"""Something else."""', id="docstring"),
        pytest.param('    """Demand."""\n', "", id="no docstring"),
        pytest.param('"""What a ride costs."""', '"""More words."""', id="docstring of what is called"),
        pytest.param("    return rides", "    # why\n\n    return rides", id="comment"),
        pytest.param(
            '.groupBy("window", "zone")', ".groupBy(\n        'window',\n        'zone',\n    )", id="layout and quotes"
        ),
        pytest.param("def demand(rides):", "def demand(rides: 'DataFrame') -> 'DataFrame':", id="annotations"),
        pytest.param("RATE = 2\n", "RATE = 2\nUNUSED = 7\n", id="a constant that it does not use"),
        pytest.param("reads=rides, window=", "owner='me', reads=rides, window=", id="owner"),
        pytest.param('tumbling("1 minute")', 'tumbling("60 s")', id="another spelling of a duration"),
    ],
)
def test_it_stays_where_the_meaning_stays(folder: Path, old: str, new: str) -> None:
    before = version(folder)
    definitions.edit(folder, old, new)
    assert version(folder) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('lateness="1 minute"', 'lateness="60 seconds"', id="spelling of a duration"),
        pytest.param('event_time="at"', 'partitions=9, event_time="at"', id="partitions"),
        pytest.param("id BIGINT, zone INT", "id LONG,  zone:  integer", id="spelling of types"),
    ],
)
def test_it_stays_where_the_topic_promises_the_same(folder: Path, old: str, new: str) -> None:
    before = version(folder)
    definitions.edit(folder, old, new, file="topics.py")
    assert version(folder) == before


def test_it_follows_what_is_imported_from_another_file_of_the_catalogue(folder: Path) -> None:
    (folder / "shared.py").write_text("def twice(column):\n    return column * FACTOR\n\n\nFACTOR = 2\n")
    definitions.edit(folder, "RATE = 2", "from shared import twice as double")
    definitions.edit(folder, "F.col(column) * RATE", "double(F.col(column))")
    before = version(folder)
    (folder / "shared.py").write_text("def twice(column):\n    return column * FACTOR\n\n\nFACTOR = 3\n")
    os.utime(folder / "topics.py")
    assert version(folder) != before


@pytest.mark.parametrize(
    ("how", "call"),
    [
        pytest.param("import shared", "shared.twice", id="the module"),
        pytest.param("import shared as other", "other.twice", id="the module under another name"),
        pytest.param("from pipelines import _shared", "_shared.twice", id="a module of the package"),
        pytest.param("from ._shared import twice", "twice", id="relative"),
        pytest.param("from . import _shared", "_shared.twice", id="a relative module"),
        pytest.param("from shared import *", "twice", id="all of it"),
        pytest.param("if True:\n    from shared import twice", "twice", id="below an if"),
        pytest.param("try:\n    from shared import twice\nexcept ImportError:\n    raise", "twice", id="below a try"),
    ],
)
def test_it_follows_each_way_of_importing(folder: Path, how: str, call: str) -> None:
    source = "def twice(column):\n    return column * FACTOR\n\n\nif True:\n    FACTOR = {}\n"
    definitions.edit(folder, "RATE = 2", how)
    definitions.edit(folder, "F.col(column) * RATE", f"{call}(F.col(column))")
    found = []
    for factor in ("2", "3", "3  # a comment"):
        for file in (folder / "shared.py", folder / "pipelines" / "_shared.py"):
            file.write_text(source.format(factor))
        os.utime(folder / "topics.py")
        found.append(version(folder))
    assert found[0] != found[1] == found[2]


def test_a_name_that_is_bound_twice_means_both_statements(folder: Path) -> None:
    definitions.edit(folder, "RATE = 2", "RATE = 2\nRATE = RATE * 2")
    before = version(folder)
    definitions.edit(folder, "RATE = 2\n", "RATE = 3\n")
    assert version(folder) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("UNUSED = 7\nRATE = 2", "RATE = 2\nUNUSED = 7", id="order of unrelated definitions"),
        pytest.param("RATE = 2", "RATE: int = 2", id="a hint at a constant"),
        pytest.param("rides.groupBy", "rides. groupBy", id="layout"),
        pytest.param("UNUSED = 7", "rides2 = 8", id="another unused name"),
        pytest.param("UNUSED = 7", "column = 9", id="a global that a parameter hides"),
        pytest.param(
            "UNUSED = 7", "UNUSED = [F.reverse]\nUNUSED.reverse()", id="a function called like what changes a list"
        ),
        pytest.param("UNUSED = 7", "print(F.lit)", id="a library's function told of"),
        pytest.param("UNUSED = 7", "UNUSED = {}\nUNUSED['cap'] = 3", id="a change of what is not used"),
        pytest.param("UNUSED = 7\nRATE = 2", "RATE = 2\nUNUSED = max(RATE, 3)", id="another use of what is used"),
        pytest.param("import hopping, pipeline, session, tumbling", "import tumbling, pipeline", id="unused words"),
    ],
)
def test_it_stays_with_what_means_nothing_to_it(folder: Path, old: str, new: str) -> None:
    definitions.edit(folder, CONSTANT, "UNUSED = 7\nRATE = 2")
    before = version(folder)
    definitions.edit(folder, old, new)
    assert version(folder) == before


def test_it_follows_what_is_taken_wholesale_through_a_file_between(folder: Path) -> None:
    (folder / "deep.py").write_text("def twice(column):\n    return column * 2\n")
    (folder / "shared.py").write_text("from deep import *\n")
    definitions.edit(folder, CONSTANT, "from shared import twice")
    definitions.edit(folder, "F.col(column) * RATE", "twice(F.col(column))")
    before = version(folder)
    (folder / "deep.py").write_text("def twice(column):\n    return column * 3\n")
    os.utime(folder / "topics.py")
    assert version(folder) != before


def test_a_name_taken_wholesale_over_one_of_the_file_counts(folder: Path) -> None:
    (folder / "shared.py").write_text("RATE = 3\n")
    definitions.edit(folder, CONSTANT, "RATE = 2\nfrom shared import *")
    before = version(folder)
    (folder / "shared.py").write_text("RATE = 4\n")
    os.utime(folder / "topics.py")
    assert version(folder) != before


def test_a_package_on_the_way_to_a_module_counts(folder: Path) -> None:
    (folder / "prices").mkdir()
    (folder / "prices" / "__init__.py").write_text("FACTOR = 2\n")
    (folder / "prices" / "taxes.py").write_text("RATE = 2\n")
    definitions.edit(folder, CONSTANT, "import prices.taxes")
    definitions.edit(folder, "* RATE", "* prices.taxes.RATE * prices.FACTOR")
    before = version(folder)
    (folder / "prices" / "__init__.py").write_text("FACTOR = 3\n")
    os.utime(folder / "topics.py")
    assert version(folder) != before


def test_the_types_of_what_spark_reads_them_of_count(folder: Path) -> None:
    definitions.edit(folder, CONSTANT, "import pandas as pd\n\nRATE = 2")
    definitions.edit(
        folder,
        "def taxed",
        "from pyspark.sql.types import DoubleType\n\n\n"
        "@F.pandas_udf(DoubleType())\ndef plus(c: pd.Series) -> pd.Series:\n    return c\n\n\ndef taxed",
    )
    definitions.edit(folder, "F.col(column) * RATE", "plus(F.col(column)) * RATE")
    before = version(folder)
    definitions.edit(folder, "-> pd.Series", "-> float")
    assert version(folder) != before


def test_the_skew_is_part_of_the_contract_and_a_changed_one_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = version(folder)
    monkeypatch.setenv("TALLY_SKEW", "7 minutes")
    assert version(folder) != before
    monkeypatch.setenv("TALLY_SKEW", "300 seconds")  # the default, in other words
    assert version(folder) == before


@pytest.mark.parametrize(
    ("conf", "means"),
    [
        ("spark.sql.ansi.enabled=false", True),
        ("spark.sql.legacy.timeParserPolicy=LEGACY", True),
        ("spark.ui.x=1", False),
    ],
)
def test_what_spark_is_told_counts_where_expressions_follow_from_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, conf: str, means: bool
) -> None:
    before = version(folder)
    monkeypatch.setenv("TALLY_SPARK_CONF", conf)
    assert (version(folder) != before) == means


def test_it_is_the_same_elsewhere_in_any_process_and_under_any_hash_seed(folder: Path, tmp_path: Path) -> None:
    other = definitions.write(tmp_path / "two")
    code = "import sys; from tally.catalog.load import load; print(load(sys.argv[1]).pipelines['demand'].version)"
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(where)],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True, timeout=400,
        ).stdout.strip()
        for where, seed in ((folder, "0"), (other, "1"), (folder, "4242"))
    }  # fmt: skip
    assert found == {version(folder)}
