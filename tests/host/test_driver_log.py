"""A driver's lines: stamped as text or as JSON, and read back without their stamps."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.base.lines import lines_of
from tally.host import driver_log
from tally.host.process import tail

SAID = "trips: the disk is full\n  cure: make room"


@pytest.fixture
def logger(request: pytest.FixtureRequest) -> Iterator[logging.Logger]:
    made = logging.getLogger(f"{driver_log.DRIVER}.{request.node.name}")
    yield made
    for handler in [*made.handlers]:
        made.removeHandler(handler)


def test_a_line_says_when_and_how_grave(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    driver_log.begin(logger.name)
    logger.error("%s", SAID)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR trips: the disk is full", lines[0])
    assert lines[1:] == ["  cure: make room"]
    assert driver_log.messages(lines) == SAID.splitlines()


def test_a_line_is_a_document_where_the_setting_says_so(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_LOG_FORMAT", "json")
    driver_log.begin(logger.name)
    logger.warning("%s", SAID, extra={"pipeline": "trips"})
    (line,) = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", document.pop("at"))
    assert document == {"level": "warning", "logger": logger.name, "message": SAID, "pipeline": "trips"}
    assert driver_log.messages([line]) == SAID.splitlines()


def test_a_document_with_other_ends_of_lines_in_its_message_is_read_whole(
    logger: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_LOG_FORMAT", "json")
    driver_log.begin(logger.name)
    logger.warning("no zone\u2028 named \x85")
    log = tmp_path / "stream.log"
    log.write_text(capsys.readouterr().out)
    assert driver_log.messages(lines_of(tail(log))) == ["no zone\u2028 named \x85"]


def test_a_logger_that_is_shown_already_is_shown_once(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    driver_log.take(logger, logging.NullHandler())
    driver_log.begin(logger.name)
    logger.error("twice")
    assert capsys.readouterr() == ("", "")


def test_lines_of_others_are_read_as_they_are() -> None:
    lines = ["26/11/19 10:00:00 ERROR Executor: lost", "", '{"at": "2026-', "  at java.lang.Thread"]
    assert driver_log.messages(lines) == [line for line in lines if line]
