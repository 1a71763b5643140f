"""Where there are many records the plain ones are read together, and what comes of it is what always came of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changing import PLAIN, archived, archived_once, check, define, refused
from pyspark.sql import SparkSession

from tally.catalog.load import catalogue
from tally.sources import redecode
from tally.sources.records import decode
from tally.speed.shared.reading import Reading


@pytest.fixture(scope="module")
def made(broker: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Six records, archived as if they were many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "MANY", 1)
        with archived_once(broker, spark, tmp_path_factory.mktemp("many"), "many") as folder:
            yield folder


def test_a_topic_stream_has_the_same_events(made: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    (topic,) = catalogue().topics.values()
    found = []
    for many in (1, 1_000):
        monkeypatch.setattr(decode, "MANY", many)
        with Reading(spark, topic).valid({0: (0, 3), 1: (0, 3)}) as frame:
            plan = frame._jdf.queryExecution().toString()
            assert ("ArrowEvalPython" in plan) == (many == 1)
            found.append(sorted(frame.collect()))
    assert found[0] == found[1] and len(found[0]) == 3


def test_archive_and_quarantine_have_the_same_rows(made: Path, spark: SparkSession) -> None:
    (topic,) = catalogue().topics.values()
    assert refused(spark, topic) == {"2": "missing:zone", "5": "future", "6": "wrong_type"}
    check(spark, topic)
    wider = define(topic.name, f"{PLAIN.replace(' NOT NULL', '')}, tip DOUBLE")
    redecode.ensure_current(spark, wider)
    assert refused(spark, wider) == {"5": "future", "6": "wrong_type"}
    assert {number: row["tip"] for number, row in archived(spark, wider).items()} == {1: None, 2: None, 3: 0.5, 4: None}
    check(spark, wider)
