"""Both readers give exactly the rows that the rules in plain Python give, from tables that Spark wrote."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from serving.cases import MIDNIGHT, WINDOWS, Row, made_pipeline, oracle, place, random_case
from serving.tables import by_spark, lay, typed, use_home

from tally.base.duration import millis
from tally.serving.read import read
from tally.serving.state import LAYERS
from tally.serving.view import served


@pytest.mark.parametrize("kind", WINDOWS)
def test_both_readers_follow_the_rules(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    use_home(monkeypatch, tmp_path / "a home")
    case = random_case(WINDOWS[kind], seed=9)
    assert {seal.state for seal in case.seals} == {"sealed", "partial", "held", "unsealed"}
    lay(case, by_spark(spark))
    step = millis(case.pipeline.window.step)
    for layer in LAYERS:
        for span in ((None, None), (MIDNIGHT - 7 * step, MIDNIGHT + 5 * step + 250)):
            expected = [typed(row) for row in oracle(case, *span, layer)]
            assert expected, "an oracle without rows proves nothing"
            table = read(case.pipeline, *span, layer)
            assert table.to_pylist() == expected, (layer, span)
            frame = served(spark, case.pipeline, *span, layer)
            assert in_spark(frame) == expected, (layer, span)
            assert frame.columns == table.column_names


def test_nothing_written_yet_is_no_rows_in_either(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_home(monkeypatch, tmp_path)
    pipeline = made_pipeline(WINDOWS["tumbling"])
    for layer in LAYERS:
        frame, table = served(spark, pipeline, layer=layer), read(pipeline, layer=layer)
        assert frame.columns == table.column_names == [
            "window_start", "window_end", "zone", "kind", "state", "revision",
        ]  # fmt: skip
        assert frame.count() == table.num_rows == 0


def test_a_frame_keeps_the_version_it_was_made_of(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_home(monkeypatch, tmp_path)
    case = random_case(WINDOWS["tumbling"], seed=5)
    lay(case, by_spark(spark))
    frame = served(spark, case.pipeline, layer="batch")
    before = frame.count()
    by_spark(spark)(f"{tmp_path}/lake/batch/made/{case.pipeline.version}", [typed(case.batch[0])], False)
    assert frame.count() == before
    assert served(spark, case.pipeline, layer="batch").count() == before + 1


def in_spark(frame: object) -> list[Row]:
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        for name in ("window_start", "window_end"):
            row[name] = row[name].astimezone(UTC)
    return sorted(rows, key=place)


def test_a_row_that_is_there_twice_is_served_once_where_nobody_vouches_for_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_home(monkeypatch, tmp_path)
    case = random_case(WINDOWS["tumbling"], seed=9)
    lay(case, by_spark(spark))
    before = read(case.pipeline).to_pylist()
    wanted = next(row for row in before if row["state"] == "held")
    twice = [row for row in case.batch if place(typed(row)) == place(wanted)]
    by_spark(spark)(f"{tmp_path}/lake/batch/made/{case.pipeline.version}", [typed(row) for row in twice], False)
    assert read(case.pipeline).to_pylist() == before == in_spark(served(spark, case.pipeline))
    assert read(case.pipeline, layer="batch").num_rows == served(spark, case.pipeline, layer="batch").count()
