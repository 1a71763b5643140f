"""A comparison is reconciled when all its counts agree and every difference has a cause; each check is seen to fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from reconcile.comparisons import STEP, T0, Comparison, difference, slot, use_home

from tally.base.errors import TallyError
from tally.control import incidents, runs, seals
from tally.reconcile import judge as judging
from tally.reconcile.judge import judge


@pytest.fixture(scope="module")
def one_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judge")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, one_home: Path) -> Path:
    use_home(monkeypatch, one_home)
    return one_home


def test_reconciled_when_every_difference_has_its_cause() -> None:
    judged = judge(Comparison().write())
    row = runs.reconciliation(judged.reconciliation)
    assert (judged.verdict, judged.failed) == ("reconciled", [])
    assert row is not None and row.verdict == row.summary["verdict"] == "reconciled"
    assert row.data_docs == judged.data_docs


def test_reconciled_when_nothing_differs_and_no_audit_table_was_ever_written() -> None:
    judged = judge(Comparison(pipeline="all_equal", slots=[slot(0), slot(1)], audit=[]).write())
    assert judged.verdict == "reconciled"


def test_reconciled_when_no_window_was_due() -> None:
    empty = Comparison(pipeline="idle", audit=[])
    number = runs.open_reconciliation("idle", empty.version, 0, 0, "")
    runs.keep_comparison(number, {**empty.summary(), "windows": 0, "equal": 0, "from": None, "to": None}, [])
    assert judge(number).verdict == "reconciled"


def test_several_causes_of_one_row_are_known_causes() -> None:
    audit = [difference(1, 1, 3, 2, "duplicate+late"), difference(1, 2, 1, None, "replay")]
    assert judge(Comparison(audit=audit).write()).verdict == "reconciled"


def lost_audit() -> Comparison:
    return Comparison(audit=[], changes={"different": 2, "equal": 4})


def null_window(column: str, value: Any = None) -> Comparison:
    rows = [difference(1, 1, 3, 2), difference(1, 2, 1, None)]
    rows[0][column] = value
    unexplained = {"unexplained": 0} if column == "explained" else {}
    return Comparison(audit=rows, changes=unexplained)


# Each check, by its words, and a comparison that only a broken comparison or a broken layer leaves behind.
BROKEN: dict[str, Comparison] = {
    "Every row counted as different is in the audit table, and no other": lost_audit(),
    "All rows of both layers took part in the comparison": Comparison(changes={"windows": 4, "equal": 2}),
    "Every compared row is either equal or different": Comparison(changes={"equal": 3}),
    "The audit table and the summary agree on what is unexplained": Comparison(changes={"unexplained": 1}),
    "The windows and the summary agree on what is unexplained": Comparison(
        slots=[slot(0), slot(1, stream=1, bad=1), slot(2, closed=False)]
    ),
    "No difference lies outside the compared windows": Comparison(
        audit=[difference(1, 1, 3, 2), difference(1, 2, 1, None), difference(7, 1, 2, 1)]
    ),
    "Each record in the range is aggregated, late, duplicate, quarantined, filtered, skipped or in flight": Comparison(
        changes={"conservation": {"records": 9, "aggregated": 8, "balanced": False}}
    ),
    "Offsets ingested = archived + quarantined + gaps, for every topic": Comparison(
        changes={"ingest": {"rides": {"balanced": True}, "payments": {"balanced": False}}}
    ),
    # The stream's side is empty, and the comparison claims that all is equal.
    "Where one layer has rows and the other has none, every row has a cause": Comparison(
        slots=[slot(0, stream=0), slot(1, stream=0)], audit=[]
    ),
    "Both layers have the same keys, but for those in the audit table": Comparison(
        slots=[slot(0, stream=1), slot(1, stream=1), slot(2, closed=False)]
    ),
    "No closed window has an unexplained difference": Comparison(
        slots=[slot(0), slot(1, stream=1, bad=1)],
        audit=[difference(1, 1, 3, 2, "unexplained"), difference(1, 2, 1, None)],
    ),
    "No window that was sealed has changed without an event that arrived since": Comparison(
        slots=[slot(0), slot(1, stream=1), {**slot(2), "unaccounted": 1}]
    ),
    "Every difference is explained by the replay of the stream's micro-batches": Comparison(
        audit=[difference(1, 1, 3, 2, "unexplained"), difference(1, 2, 1, None)]
    ),
    "Every difference names its window's start": null_window("window_start"),
    "Every difference names its window's end": null_window("window_end"),
    "Every difference names its key": null_window("key"),
    "Every difference names a cause": null_window("cause"),
    "Every difference says whether it is explained": null_window("explained"),
    "Every cause is a known one": null_window("cause", "late+moonlight"),
}


def test_every_check_is_seen_to_fail_here() -> None:
    every = [*judging.TOTALS, *judging.SLOTS, *judging.DIFFERENCES]
    assert {check.says for check in every} == set(BROKEN)


@pytest.mark.parametrize("words", BROKEN)
def test_held_where(words: str) -> None:
    judged = judge(BROKEN[words].write())
    assert judged.verdict == "held"
    assert [line for line in judged.failed if line.startswith(words)], judged.failed


def test_an_empty_batch_side_is_held_too() -> None:
    judged = judge(Comparison(slots=[slot(0, rows=0), slot(1, rows=0)], audit=[], changes={"windows": 4}).write())
    assert judged.verdict == "held"


def test_the_line_of_log_names_the_rows_and_the_page() -> None:
    broken = BROKEN["No closed window has an unexplained difference"]
    judged = judge(broken.write())
    line = str(judged)
    assert "\n" not in line and judged.rows in line and judged.page in line
    assert f"reconciliation = {judged.reconciliation}" in line


def test_the_page_shows_the_check_in_words_and_the_row_that_failed_it() -> None:
    audit = [difference(1, 4711, 3, 2, "unexplained"), difference(1, 2, 1, None)]
    judged = judge(Comparison(slots=[slot(0), slot(1, stream=1, bad=1)], audit=audit).write())
    page = Path(judged.page).read_text()
    assert Path(judged.data_docs).exists()
    assert "No closed window has an unexplained difference" in page
    pages = "".join(path.read_text() for path in Path(judged.data_docs).parent.rglob("*differences.html"))
    assert "4711" in pages


def test_judging_twice_gives_the_same_verdict() -> None:
    number = Comparison().write()
    first, second = judge(number), judge(number)
    assert (first.verdict, first.failed) == (second.verdict, second.failed)


def test_an_incident_is_open_until_nothing_is_held() -> None:
    name = "incidents"
    bad = Comparison(
        pipeline=name,
        slots=[slot(0), slot(1, stream=1, bad=1)],
        audit=[difference(1, 1, 3, 2, "unexplained"), difference(1, 2, 1, None)],
    )
    judge(bad.write())
    (incident,) = incidents.opened(name)
    assert incident.cause == "unexplained difference"
    assert f"tally backfill {name} --from" in incident.cure
    held = seals.Seal(
        pipeline=name, version=bad.version, slot_start=T0 + 9 * STEP, slot_end=T0 + 10 * STEP, state="held", revision=0,
        digest="x", rows=1, reconciliation=1, changed_at=1,
    )  # fmt: skip
    seals.write([held])
    good = Comparison(pipeline=name)
    judge(good.write())
    assert incidents.opened(name), "a window elsewhere is still held"
    seals.write([seals.Seal(**{**vars(held), "state": "sealed"})])
    judge(good.write())
    assert not incidents.opened(name)


def test_what_was_not_compared_is_not_judged() -> None:
    with pytest.raises(TallyError, match="no reconciliation 12345"):
        judge(12345)
    number = runs.open_reconciliation("vendor_trips", "v1", 0, 0, "")
    with pytest.raises(TallyError, match="never ended"):
        judge(number)


def test_old_pages_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging.data_docs, "KEPT", 2)
    judged = [judge(Comparison(pipeline="pruned").write()) for _ in range(4)]
    assert [Path(one.page).exists() for one in judged] == [False, False, True, True]
