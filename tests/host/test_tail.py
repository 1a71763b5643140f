"""The end of a log is its last whole lines."""

from __future__ import annotations

from pathlib import Path

from tally.host.process import TAIL, tail


def test_a_line_that_begins_before_what_is_looked_at_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "stream.log"
    first, last = "it was killed at some time" * 4, "\tat java.lang.Thread.run"
    log.write_text(f"{first}\n" + f"{last}\n" * (TAIL // (len(last) + 1)))
    assert set(tail(log, lines=10_000).splitlines()) == {last}
    assert tail(log, lines=2) == f"{last}\n{last}"


def test_what_was_written_before_is_no_part_of_it(tmp_path: Path) -> None:
    log = tmp_path / "stream.log"
    log.write_text("of an earlier one\n")
    since = log.stat().st_size
    with log.open("a") as file:
        file.write("one\ntwo\n")
    assert tail(log, since=since) == "one\ntwo"
    assert tail(tmp_path / "none") == ""
