"""The page and its plots say what the runs came to, and nothing else."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.peers import page, plot, results
from bench.peers.results import Results, Run

DOCS = Path(results.REPO) / "docs"


def run(engine: str, seconds: float, wrong: str = "", **more: float) -> Run:
    numbers = {"seconds": seconds, **more}
    return Run(
        workload="drain", case="W1 2 M", engine=engine, numbers=numbers, wrong=wrong, commit="abc", at="2026-01-02"
    )


@pytest.fixture
def found() -> Results:
    runs = [run("tally", 12.0), run("tally", 9.0), run("tally", 15.0), run("tally", 1.0, wrong="2 wrong sums")]
    return Results("two cores", {"flink": "2.2.0"}, [*runs, run("flink", 8.0), run("flink", 8.0)])


def test_a_number_is_the_median_of_right_runs_with_its_spread_and_its_ratio(found: Results) -> None:
    row = next(line for line in page.table(found, "drain").splitlines() if "| tally |" in line)
    assert "12 (9–15) · 1.50×" in row
    assert "3 of 4" in row


def test_what_was_wrong_is_said_and_has_no_time(found: Results) -> None:
    assert "- W1 2 M, tally: 2 wrong sums" in page.page(found)
    found.runs = [one for one in found.runs if one.wrong or one.engine == "flink"]
    row = next(line for line in page.table(found, "drain").splitlines() if "| tally |" in line)
    assert row.startswith("| W1 2 M | tally |  |  |")
    assert "no right answer" in page.plots(found)["performance-drain-seconds.svg"]


def test_a_plot_is_a_document_whose_bars_are_to_scale(found: Results) -> None:
    document = ElementTree.fromstring(page.plots(found)["performance-drain-seconds.svg"])
    bars = [shape for shape in document.iter("{http://www.w3.org/2000/svg}rect") if shape.get("fill") != "#ffffff"]
    widths = [float(str(shape.get("width"))) for shape in bars]
    assert widths[1] / widths[0] == pytest.approx(8 / 12, abs=0.01)


def test_words_in_a_plot_are_escaped() -> None:
    ElementTree.fromstring(plot.bars("a < b & c", "s", [("<case>", [("tally", None)])]))


def test_runs_are_written_and_read_as_they_are(found: Results, tmp_path: Path) -> None:
    results.write(found, tmp_path / "performance.json")
    assert results.read(tmp_path / "performance.json") == found


def test_a_workload_that_is_measured_anew_loses_its_old_runs_only(found: Results) -> None:
    found.runs.append(Run(workload="kill", case="500/s", engine="flink", numbers={"seconds": 1.0}))
    assert [one.workload for one in found.without(["drain"]).runs] == ["kill"]


def test_the_page_in_docs_is_made_of_the_runs_in_docs() -> None:
    kept = results.read(DOCS / "performance.json")
    assert (DOCS / "performance.md").read_text() == page.page(kept)
    plots = page.plots(kept)
    assert {file.name for file in (DOCS / "images").glob("performance-*.svg")} == set(plots)
    assert all((DOCS / "images" / name).read_text() == document for name, document in plots.items())
