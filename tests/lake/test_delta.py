"""What Tally reads from a Delta table's log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from tally.base.errors import AnswerIsNo, TallyError
from tally.lake import delta


def commit(path: str, kind: str | None, **more: int) -> None:
    words = {"userMetadata": delta.words(kind, **more)} if kind else {}
    rows = pa.table({"n": [1]})
    write_deltalake(path, rows, mode="append", commit_properties=CommitProperties(custom_metadata=words))


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    for at, kind in enumerate(["micro-batch", None, "fold", "micro-batch", None, None, "micro-batch"]):
        commit(path, kind, batch=at)
    return path


def test_the_newest_commit_of_a_kind(table: str) -> None:
    found = delta.newest(table, "fold")
    assert found is not None and (found.version, found.words["batch"]) == (2, 2)
    assert delta.newest(table, "restate") is None and delta.newest(table + "-none", "fold") is None


@pytest.mark.parametrize(("version", "standing"), [(0, 2), (2, 2), (3, 5), (6, 6)])
def test_what_others_changed_since_a_commit_stands_until_the_next_of_its_kind(
    table: str, version: int, standing: int
) -> None:
    assert delta.standing(table, "micro-batch", version) == standing


def entry(table: str, version: int) -> Path:
    return Path(table) / "_delta_log" / f"{version:020d}.json"


def test_a_log_as_it_lies_there_is_told_newest_first(table: str) -> None:
    log = delta.log(table)
    assert (log.version, log.harmed, log.wrong) == (6, None, "")
    assert [commit.words.get("batch") for commit in log.commits] == [6, None, None, 3, 2, None, 0]
    told = log.newest("fold")
    assert told is not None and told.version == 2 and log.at(2) == told and log.at(9) is None
    assert delta.log(f"{table}-none") == delta.Log(version=-1)


@pytest.mark.parametrize(
    ("version", "act", "says"),
    [
        (6, lambda file: file.write_bytes(b""), "entry 6 of its log is empty"),
        (6, lambda file: file.write_bytes(b'{"add":{"path"'), "entry 6 of its log is garbled"),
        (6, lambda file: file.write_bytes(b"\xff\x00"), "entry 6 of its log is garbled"),
        (1, lambda file: file.unlink(), "entry 1 of its log is missing"),
    ],
)
def test_a_harmed_entry_is_named(table: str, version: int, act: Callable[[Path], None], says: str) -> None:
    act(entry(table, version))
    log = delta.log(table)
    assert (log.harmed, log.wrong, log.version) == (version, says, 6)


# What str.splitlines() takes for the end of a line, and may stand in a JSON text as it is.
ENDS = "\x1c\x85\u2028\u2029"


def test_a_text_with_other_ends_of_lines_does_not_tear_an_entry(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    words = {"userMetadata": delta.words("micro-batch", batch=7)}
    rows = pa.table({"name": [f"{one}x" for one in ENDS]})
    write_deltalake(path, rows, commit_properties=CommitProperties(custom_metadata=words))
    text = entry(path, 0).read_bytes().decode()
    entry(path, 0).write_bytes(text.replace('"commitInfo":{', f'"commitInfo":{{"by":"a{ENDS[1:]}b",').encode())
    log = delta.log(path)
    assert (log.version, log.harmed, log.wrong) == (0, None, "")
    assert [commit.words.get("batch") for commit in log.commits] == [7]
    assert "by" in delta.commit_info(entry(path, 0).read_bytes().decode())


def test_what_a_checkpoint_stands_for_need_not_be_there(table: str) -> None:
    DeltaTable(table).create_checkpoint()
    commit(table, None)
    for version in (0, 1):
        entry(table, version).unlink()
    assert (delta.log(table).wrong, delta.log(table).version) == ("", 7)
    entry(table, 7).write_bytes(b"")
    assert delta.log(table).harmed == 7


def test_a_store_that_does_not_answer_is_no_harmed_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal would be given up after three tries, with a rebuild for its cure: what fails here passes by itself."""

    def away(_: str) -> None:
        raise DeltaError("error sending request for url (https://lake.example)")

    monkeypatch.setattr(delta, "table", away)
    with pytest.raises(TallyError, match="error sending request") as told:
        delta.log("s3://lake/speed/p/v1")
    assert not isinstance(told.value, AnswerIsNo)
    assert told.value.field == "TALLY_LAKE" and told.value.cure
