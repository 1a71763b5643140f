"""What a stream's driver says of an error that it did not expect, and when earlier drivers' deaths are over."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from tally.base.errors import DataLost, StreamFailed
from tally.control import incidents, streams
from tally.lake import memory, session
from tally.speed import driver as drivers
from tally.speed.driver import Driver
from tally.speed.refusal import as_refusal, diagnosed
from tally.speed.start import agreement


@dataclass
class Named:
    name: str = "demand"
    version: str = "v1"
    reads: list[str] = field(default_factory=list)


@dataclass
class Stream:
    moved: bool
    at_rest: bool = False

    def waits(self) -> bool:
        return self.at_rest


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    (tmp_path / "catalog" / "pipelines").mkdir(parents=True)
    (tmp_path / "catalog" / "topics.py").touch()
    monkeypatch.setenv("TALLY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TALLY_CATALOG", str(tmp_path / "catalog"))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    (tmp_path / "home").mkdir()
    return Driver([])


@pytest.mark.parametrize(
    ("runners", "over"),
    [
        ([Stream(moved=True), Stream(moved=True)], True),
        ([Stream(moved=True), Stream(moved=False, at_rest=True)], True),
        ([Stream(moved=True), Stream(moved=False)], False),
        ([Stream(moved=False, at_rest=True)], False),
    ],
)
def test_deaths_count_until_no_stream_is_where_drivers_died(driver: Driver, runners: list[Stream], over: bool) -> None:
    streams.register_driver("tally", "here", 1, 0.0, "log")
    streams.died("tally", 3, 0, "out of memory")
    incidents.report("", "driver died", "out of memory")
    driver.runners = runners  # type: ignore[assignment]
    driver.outlive()
    found = streams.driver("tally")
    assert found is not None and found["deaths"] == (0 if over else 3)
    assert bool(incidents.opened("")) is not over


def test_a_driver_whose_jvm_has_gone_ends_and_says_of_what(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "exit_code", lambda *_: memory.FULL_CODES[0])
    driver.require_jvm()  # a session that was there before is not its own
    driver.owns_spark = True
    with pytest.raises(memory.JvmEnded, match="out of memory"):
        driver.require_jvm()


def test_an_executor_without_memory_is_a_failure_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    error = RuntimeError("Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space\n\tat org.apache")
    found = as_refusal(error, Named())  # type: ignore[arg-type]
    assert isinstance(found, StreamFailed)
    assert "was full (Java heap space)" in found.message and "TALLY_STREAM_MEMORY" in (found.cure or "")


def test_an_error_of_spark_s_is_one_line_and_stands_whole_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    for number in (1, 2):
        try:
            raise RuntimeError(f"Job aborted\n[DIVIDE_BY_ZERO] Division {number} by zero.\n\tat org.apache.spark")
        except RuntimeError as error:
            found = as_refusal(error, Named())  # type: ignore[arg-type]
        assert found.message == f"[DIVIDE_BY_ZERO] Division {number} by zero."
    (file,) = (tmp_path / "logs").iterdir()
    assert str(file) in (found.cure or "")
    text = file.read_text()
    assert "Traceback" in text and "at org.apache.spark" in text and "Division 1" not in text, "the newest, whole"
    assert capfd.readouterr() == ("", "")


def test_an_error_of_its_own_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    lost = DataLost("records are gone", pipeline="demand")
    assert as_refusal(lost, Named()) is lost  # type: ignore[arg-type]
    assert not (tmp_path / "logs").exists()


def test_looking_for_the_cause_of_one_failure_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    error = RuntimeError("[DIVIDE_BY_ZERO] Division by zero.")

    def found(raised: Exception) -> str:
        def look(*_: object) -> None:
            raise raised

        monkeypatch.setattr(agreement, "check_topics", look)
        return diagnosed(error, Named()).message  # type: ignore[arg-type]

    assert found(DataLost("records are gone", pipeline="demand")) == "records are gone"
    assert found(ValueError("a plan that is no JSON")) == "[DIVIDE_BY_ZERO] Division by zero."


def test_a_store_that_does_not_answer_as_new_pipelines_are_looked_for_ends_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OperationalError("select", {}, Exception("disk I/O error"))

    monkeypatch.setattr(drivers, "catalogue", lambda: SimpleNamespace(pipelines={"demand": Named()}))
    with monkeypatch.context() as away:
        away.setattr(streams, "wanted", refuse)
        driver.take_new()
        assert driver.runners == []
    driver.take_new()
    assert [runner.pipeline.name for runner in driver.runners] == ["demand"]
    driver.take_new()
    assert len(driver.runners) == 1
