"""The screen tells each change once, on a terminal or in a log, and what it counts it has seen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tally.demo.parts import Part, look_after, starting
from tally.demo.screen import HEADS, Screen, cells, whole
from tally.demo.watch import Seen, Truth

ROW: dict[str, Any] = {
    "pipeline": "vendor_trips", "state": "healthy", "events_in": 361_233, "lag_records": 42,
    "watermark": "2026-11-18T10:20:30Z", "newest_window": "2026-11-18T10:31:00Z", "freshness_seconds": 1.234,
    "sealed": 118, "held": 1, "explained": 1116, "unexplained": 3,
}  # fmt: skip


def test_a_part_is_starting_then_up_with_the_seconds_that_it_took() -> None:
    part = Part("Kafka")
    assert part.seconds is None and part.line() == "Kafka: pending"
    with starting(part):
        assert part.state == "starting"
        time.sleep(0.02)
    assert part.state == "up" and part.took is not None and 0.02 <= part.took < 1


def test_a_part_that_cannot_start_is_failed_and_says_why() -> None:
    part = Part("Kafka")
    with pytest.raises(OSError), starting(part):
        raise OSError("port 9092 is in use\nand more")
    assert (part.state, part.note) == ("failed", "port 9092 is in use")


def test_a_part_that_ends_is_failed_until_it_is_back() -> None:
    alive = [True]
    part = Part("stream driver", lives=lambda: alive[0])
    with starting(part):
        pass
    states = []
    for alive[0] in (True, False, False, True):
        look_after(part)
        states.append(part.state)
    assert states == ["up", "failed", "failed", "up"]


def test_a_log_gets_a_line_for_each_change_and_no_more() -> None:
    lines: list[str] = []
    kafka, airflow = Part("Kafka"), Part("Airflow")
    screen = Screen([kafka, airflow], lines.append, live=False)
    for _ in range(3):
        screen.draw(Seen())
    with starting(kafka):
        screen.draw(Seen())
        screen.draw(Seen())
    screen.links["Airflow UI"] = "http://localhost:8080"
    screen.draw(Seen(pipelines=[ROW]))
    screen.draw(Seen(pipelines=[ROW]))
    screen.close()
    assert [line.split(":")[0].strip() for line in lines[:3]] == ["Kafka", "Kafka", "Airflow UI"]
    assert lines[0] == "Kafka: starting" and lines[1].startswith("Kafka: up")
    assert len(lines) == 5 and "361,233" in lines[3] and lines[4].strip().startswith("sent: ")


def test_the_terminal_shows_parts_numbers_address_producer_and_memory() -> None:
    seen = Seen(pipelines=[ROW], topics={"rides": 7}, memory={"Kafka": 2**30})
    seen.classes.update({"good": 5, "late": 2})
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(whole([Part("Kafka", note="at 127.0.0.1:9092")], {"Airflow UI": "http://localhost:8080"}, seen))
    text = console.export_text()
    for word in (*HEADS, *cells(ROW), "127.0.0.1:9092", "http://localhost:8080", "7 rides", "2 late", "1.00 GiB"):
        assert word in text, word
    assert "5 good" not in text


def test_what_nobody_knows_is_a_dash() -> None:
    unknown = {**ROW, "lag_records": None, "watermark": None, "newest_window": None, "freshness_seconds": None}
    assert cells(unknown)[3:7] == ["–"] * 4


def test_the_truth_is_counted_as_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "rides.csv"
    truth = Truth(file)
    truth.read_on()
    file.write_text("id,partition,offset,class,event_time_ms\n1,0,0,good,5\n2,0,1,la")
    truth.read_on()
    assert truth.classes == {"good": 1}
    with file.open("a") as more:
        more.write("te,6\n3,0,2,good,\n")
    truth.read_on()
    truth.read_on()
    assert truth.classes == {"good": 2, "late": 1}
