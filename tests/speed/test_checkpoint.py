"""What Spark's write-ahead log says a stream still needs of its topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tally.base.errors import AnswerIsNo
from tally.speed import checkpoint


def plan(folder: Path, batch: int, ends: dict[str, int], *, committed: bool) -> None:
    """One entry of the offset log, as Spark writes it, and of the commit log where the micro-batch is over."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    text = "\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({"rides": ends})])
    (folder / "offsets" / str(batch)).write_text(text)
    if committed:
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_nothing_is_needed_before_the_first_plan(tmp_path: Path) -> None:
    assert checkpoint.unread(str(tmp_path), ["rides"]) == ({}, {})


def test_a_committed_micro_batch_is_read_on_from_its_end(tmp_path: Path) -> None:
    plan(tmp_path, 0, {"0": 100, "1": 7}, committed=True)
    plan(tmp_path, 1, {"0": 200, "1": 9}, committed=True)
    ends = {"rides": {0: 200, 1: 9}}
    assert checkpoint.unread(str(tmp_path), ["rides"]) == (ends, ends)


def test_one_that_was_only_planned_is_read_again_from_its_start(tmp_path: Path) -> None:
    plan(tmp_path, 0, {"0": 100, "1": 7}, committed=True)
    plan(tmp_path, 1, {"0": 200, "1": 9}, committed=False)
    needed, reached = checkpoint.unread(str(tmp_path), ["rides"])
    assert needed == {"rides": {0: 100, 1: 7}}
    assert reached == {"rides": {0: 200, 1: 9}}


def test_a_text_with_other_ends_of_lines_does_not_tear_an_entry(tmp_path: Path) -> None:
    plan(tmp_path, 0, {"0": 100}, committed=False)
    file = tmp_path / "offsets" / "0"
    file.write_bytes(file.read_bytes().replace(b"0}", '0,"conf":{"app":"a\x85\u2028b"}}'.encode(), 1))
    assert checkpoint.plan_fault(str(tmp_path), 0, ["rides"]) == ""
    assert checkpoint.planned(str(tmp_path), 0, ["rides"]).ranges == {"rides": {0: (0, 100)}}


def test_a_garbled_beginning_is_refused_by_name(tmp_path: Path) -> None:
    plan(tmp_path, 0, {"0": 100}, committed=False)
    (tmp_path / "sources" / "0").mkdir(parents=True)
    for text in ("", "v1\n{"):
        (tmp_path / "sources" / "0" / "0").write_text(text)
        with pytest.raises(AnswerIsNo, match="sources/0/0: it is garbled") as refused:
            checkpoint.unread(str(tmp_path), ["rides"])
        assert "rebuild" in (refused.value.cure or "")
