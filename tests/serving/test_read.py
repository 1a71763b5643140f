"""The reader without a JVM: the rules on random tables, files it need not open, and what it refuses."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from serving.cases import DAY, MIDNIGHT, WINDOWS, made_pipeline, oracle, random_case, seal
from serving.tables import by_delta_rs, lay, mark, typed, use_home

from tally.base.duration import millis
from tally.base.errors import TallyError
from tally.control import beginnings, seals
from tally.serving import read as reader
from tally.serving.read import read
from tally.serving.state import LAYERS


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_home(monkeypatch, tmp_path / "a home")
    return tmp_path / "a home"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", WINDOWS)
def test_rows_follow_the_rules(kind: str, seed: int) -> None:
    case = random_case(WINDOWS[kind], seed)
    lay(case, by_delta_rs)
    step = millis(case.pipeline.window.step)
    for layer in LAYERS:
        for start, end in [(None, None), (-7, 7), (-10, 0), (0, None), (None, -3), (5, 5), (0, 1)]:
            for shift in (0, 250):
                span = [None if at is None else MIDNIGHT + at * step + shift for at in (start, end)]
                expected = [typed(row) for row in oracle(case, *span, layer)]
                assert read(case.pipeline, *span, layer).to_pylist() == expected, (layer, span)


def test_types_are_those_that_were_written() -> None:
    case = random_case(WINDOWS["tumbling"], 1)
    lay(case, by_delta_rs)
    micros = pa.timestamp("us", "UTC")
    types = [micros, micros, pa.int32(), pa.string(), pa.int64(), pa.float64(), pa.decimal128(12, 2)]
    assert read(case.pipeline).schema.types == [*types, pa.string(), pa.int32()]


def test_a_row_of_a_sealed_slot_that_only_the_stream_has_is_not_served() -> None:
    case = random_case(WINDOWS["tumbling"], 1)
    start = {"window_start": MIDNIGHT, "window_end": MIDNIGHT + 60_000}
    rest = {"trips": 1, "fare": 1.0, "paid": 1}
    case.speed = [{**start, "zone": 1, "kind": "a", **rest, "_batch": 3}]
    case.batch = [{**start, "zone": 2, "kind": "a", **rest}]
    case.seals = []
    lay(case, by_delta_rs)
    assert [row["zone"] for row in read(case.pipeline).to_pylist()] == [1]
    seals.write([seal(case.pipeline, MIDNIGHT, "sealed", 1)])
    assert [row["zone"] for row in read(case.pipeline).to_pylist()] == [2]


def test_an_open_window_closes_when_the_watermark_reaches_its_end() -> None:
    case = random_case(WINDOWS["tumbling"], 1)
    case.seals, case.batch, case.begins = [], [], None
    case.speed = [{**case.speed[0], "window_start": MIDNIGHT, "window_end": MIDNIGHT + 60_000}]
    lay(case, by_delta_rs)
    for watermark, state in ((MIDNIGHT + 59_999, "open"), (MIDNIGHT + 60_000, "closed")):
        mark(case, watermark)
        assert [row["state"] for row in read(case.pipeline).to_pylist()] == [state]
    beginnings.say(case.pipeline, MIDNIGHT + 1, by="a person", why="")
    assert [row["state"] for row in read(case.pipeline).to_pylist()] == ["partial"]


def test_another_versions_rows_and_seals_are_not_seen() -> None:
    case = random_case(WINDOWS["tumbling"], 2)
    lay(case, by_delta_rs)
    assert read(case.pipeline).num_rows > 0
    assert read(dataclasses.replace(case.pipeline, version="v000000000002")).num_rows == 0


def test_days_outside_the_range_are_not_opened(own_home: Path) -> None:
    case = random_case(WINDOWS["tumbling"], 3)
    lay(case, by_delta_rs)
    expected = read(case.pipeline, MIDNIGHT, MIDNIGHT + DAY).to_pylist()
    assert expected
    for folder in own_home.glob("lake/*/*/*/_date=2024-10-03"):
        shutil.rmtree(folder)
    assert read(case.pipeline, MIDNIGHT, MIDNIGHT + DAY).to_pylist() == expected


def test_a_seal_that_changes_meanwhile_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(WINDOWS["tumbling"], 4)
    case.seals = []
    lay(case, by_delta_rs)
    opened, sealed = [], [seal(case.pipeline, row["window_start"], "sealed", 2) for row in case.batch]
    real = reader.open_snapshot

    def open_and_seal(layer: str, pipeline: object) -> object:
        opened.append(layer)
        snapshot = real(layer, pipeline)
        seals.write(sealed)
        return snapshot

    monkeypatch.setattr(reader, "open_snapshot", open_and_seal)
    states = {row["state"] for row in read(case.pipeline, layer="batch").to_pylist()}
    assert states == {"sealed"}
    assert opened == ["speed", "batch"] * 2


def test_wrong_use_names_the_field() -> None:
    pipeline = made_pipeline(WINDOWS["tumbling"])
    with pytest.raises(TallyError) as refused:
        read(pipeline, 5, 4)
    assert refused.value.field == "to" and refused.value.cure
    with pytest.raises(TallyError) as refused:
        read(pipeline, layer="gold")
    assert refused.value.field == "layer" and "served" in str(refused.value)


def test_a_measure_that_takes_a_readers_name_is_refused(own_home: Path) -> None:
    pipeline = made_pipeline(WINDOWS["tumbling"])
    case = random_case(WINDOWS["tumbling"], 1)
    rows = pa.table({"window_start": pa.array([typed(case.batch[0])["window_start"]]), "state": ["NY"]})
    from deltalake import write_deltalake

    write_deltalake(f"{own_home}/lake/batch/made/{pipeline.version}", rows)
    with pytest.raises(TallyError, match="'state'"):
        read(pipeline)
