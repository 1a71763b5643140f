"""What Tally reads from a Delta table's log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from tally import lake


def commit(path: str, kind: str | None, **more: int) -> None:
    words = {"userMetadata": lake.words(kind, **more)} if kind else {}
    rows = pa.table({"n": [1]})
    write_deltalake(path, rows, mode="append", commit_properties=CommitProperties(custom_metadata=words))


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    for at, kind in enumerate(["micro-batch", None, "fold", "micro-batch", None, None, "micro-batch"]):
        commit(path, kind, batch=at)
    return path


def test_the_newest_commit_of_a_kind(table: str) -> None:
    found = lake.newest(table, "fold")
    assert found is not None and (found.version, found.words["batch"]) == (2, 2)
    assert lake.newest(table, "restate") is None and lake.newest(table + "-none", "fold") is None


@pytest.mark.parametrize(("version", "standing"), [(0, 2), (2, 2), (3, 5), (6, 6)])
def test_what_others_changed_since_a_commit_stands_until_the_next_of_its_kind(
    table: str, version: int, standing: int
) -> None:
    assert lake.standing(table, "micro-batch", version) == standing
