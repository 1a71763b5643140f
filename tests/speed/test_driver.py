"""What a stream's driver says of an error that it did not expect."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tally.errors import DataLost
from tally.speed.refusal import as_refusal


@dataclass
class Named:
    name: str = "demand"


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
