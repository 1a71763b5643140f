"""`tally read` as a shell sees it: formats that lose nothing, one document with --json, and refusals with a cure."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tally.base.duration import iso
from tally.catalog.load import load

sys.path.insert(0, str(Path(__file__).parents[1]))
from serving.cases import MIDNIGHT, WINDOWS, Case, oracle, random_case
from serving.tables import by_delta_rs, lay, typed, use_home

TALLY = str(Path(sys.executable).parent / "tally")
TOPICS = """
from tally import topic

trips = topic("trips", schema="zone INT, kind STRING, fare DOUBLE, at TIMESTAMP", event_time="at", lateness="5 minutes")
"""
MADE = """
from topics import trips

from tally import pipeline, tumbling


@pipeline(reads=trips, window=tumbling("1 minute"), key=["zone", "kind"])
def made(trips):
    return trips.groupBy("window", "zone", "kind").count()
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("read")
    (folder / "spark" / "pipelines").mkdir(parents=True)
    (folder / "spark" / "topics.py").write_text(TOPICS)
    (folder / "spark" / "pipelines" / "made.py").write_text(MADE)
    made = random_case(WINDOWS["tumbling"], 5)
    made.pipeline = load(folder / "spark").pipelines["made"]
    made.seals = [type(one)(**{**vars(one), "version": made.pipeline.version}) for one in made.seals]
    made.batch[0]["fare"] = float("nan")
    with pytest.MonkeyPatch.context() as patch:
        use_home(patch, folder / "home")
        lay(made, by_delta_rs)
    return made


def tally(case: Case, *arguments: str, home: str | None = None) -> subprocess.CompletedProcess[bytes]:
    catalog = Path(case.pipeline.file).parents[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TALLY_")}
    where = {"TALLY_CATALOG": str(catalog), "TALLY_HOME": home or str(catalog.parent / "home")}
    return subprocess.run([TALLY, *arguments], env={**kept, **where}, capture_output=True, timeout=400, check=False)


def expected(case: Case, layer: str = "served") -> list[dict[str, object]]:
    rows = [typed(row) for row in oracle(case, None, None, layer)]
    for row in rows:
        row.update({name: iso(row[name]) for name in ("window_start", "window_end")}, paid=f"{row['paid']:.2f}")
        row["fare"] = "NaN" if row["fare"] != row["fare"] else row["fare"]
    return rows


@pytest.mark.parametrize("layer", ["served", "speed", "batch"])
def test_json_is_one_document_of_all_rows(case: Case, layer: str) -> None:
    done = tally(case, "read", "made", "--layer", layer, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == expected(case, layer)


def test_a_range_is_half_open_and_by_window_start(case: Case) -> None:
    start, end = "2024-10-03T23:55:00Z", "2024-10-04T00:03"
    done = tally(case, "read", "made", "--from", start, "--to", end, "--format", "json")
    rows = json.loads(done.stdout)
    assert rows and rows == [r for r in expected(case) if start <= r["window_start"] < end]
    assert iso(typed({"window_start": MIDNIGHT})["window_start"]) == "2024-10-04T00:00:00Z"


def test_csv_tells_null_from_text_and_loses_no_cent(case: Case) -> None:
    done = tally(case, "read", "made", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    wanted = expected(case)
    assert [row["window_start"] for row in rows] == [row["window_start"] for row in wanted]
    assert [Decimal(row["paid"]) for row in rows] == [Decimal(row["paid"]) for row in wanted]
    assert [row["zone"] for row in rows] == ["" if row["zone"] is None else str(row["zone"]) for row in wanted]
    assert [row["fare"] for row in rows] == ["" if row["fare"] is None else str(row["fare"]) for row in wanted]


def test_parquet_goes_to_a_file_or_to_a_pipe(case: Case, tmp_path: Path) -> None:
    file, count = tmp_path / "rows.parquet", len(expected(case))
    done = tally(case, "read", "made", "--output", str(file), "--json")
    assert json.loads(done.stdout) == {"output": str(file), "format": "parquet", "rows": count}
    piped = tally(case, "read", "made", "--format", "parquet")
    assert pq.read_table(file).num_rows == pq.read_table(io.BytesIO(piped.stdout)).num_rows == count
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_table_shows_the_newest_rows_and_says_how_many_more(case: Case) -> None:
    done = tally(case, "read", "made", "--limit", "3")
    text = done.stdout.decode()
    assert f"{len(expected(case)) - 3} older rows" in text
    assert expected(case)[-1]["window_start"] in text and "window_start" in text


def test_a_reader_that_hangs_up_is_no_failure_to_speak_of(case: Case) -> None:
    catalog = Path(case.pipeline.file).parents[1]
    env = {**os.environ, "TALLY_CATALOG": str(catalog), "TALLY_HOME": str(catalog.parent / "home")}
    shell = f"set -o pipefail; {TALLY} read made --format csv | true"
    done = subprocess.run(["bash", "-c", shell], env=env, capture_output=True, timeout=400, check=False)
    assert done.stderr == b""


def test_nothing_written_yet_is_no_rows_and_a_word_on_what_to_do(case: Case, tmp_path: Path) -> None:
    done = tally(case, "read", "made", home=str(tmp_path))
    assert done.returncode == 0 and b"tally stream made" in done.stderr
    assert tally(case, "read", "made", "--json", home=str(tmp_path)).stdout == b"[]\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["nope", "made"]),
        (["made", "--from", "yesterday"], ["--from", "ISO 8601"]),
        (["made", "--from", "2026-01-02", "--to", "2026-01-01"], ["--to", "swap"]),
        (["made", "--layer", "gold"], ["--layer", "served"]),
        (["made", "--format", "xml"], ["--format", "parquet"]),
        (["made", "--json", "--format", "csv"], ["--format"]),
        (["made", "--output", "/nowhere/rows.csv"], ["--output", "folder"]),
    ],
)
def test_wrong_use_is_exit_2_with_field_and_cure(case: Case, arguments: list[str], words: list[str]) -> None:
    done = tally(case, "read", *arguments)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 2, said
    assert all(word in said for word in words), said
    assert "Traceback" not in said


def test_status_has_every_pipeline_with_the_promised_fields(case: Case) -> None:
    done = tally(case, "status", "--json")
    (row,) = json.loads(done.stdout)
    assert {
        "pipeline", "state", "reason", "lag_records", "watermark", "freshness_seconds", "sealed_to", "unexplained",
    } <= row.keys()  # fmt: skip
    assert row["pipeline"] == "made" and row["state"] == "dead"
    assert row["watermark"] == iso(typed({"window_start": case.watermark})["window_start"])
    assert row["sealed"] == sum(one.state == "sealed" for one in case.seals)
    assert row["held"] == sum(one.state == "held" for one in case.seals)
