"""Where the first pass does not speak: surroundings in which Spark may say something else than is known here."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tally.reconcile.first_pass import unsure
from tally.reconcile.first_pass.tables import Snapshot
from tally.reconcile.first_pass.unsure import Unsure


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TALLY_SPARK_CONF", "spark.sql.ansi.enabled=false"),
        ("TALLY_SPARK_MASTER", "spark://elsewhere:7077"),
        ("TALLY_LAKE", "s3://bucket/lake"),
    ],
)
def test_surroundings_that_may_change_a_text_are_spark_s(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    for other in ("TALLY_SPARK_CONF", "TALLY_SPARK_MASTER", "TALLY_LAKE"):
        monkeypatch.delenv(other, raising=False)
    unsure.check_surroundings()
    monkeypatch.setenv(name, value)
    with pytest.raises(Unsure):
        unsure.check_surroundings()


@pytest.mark.parametrize(("release", "good"), [("17.0.15", True), ("21.0.2", False), (None, False)])
def test_another_java_writes_floating_numbers_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str | None, good: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if release:
        (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    if good:
        unsure.check_java()
    else:
        with pytest.raises(Unsure, match="floating"):
            unsure.check_java()


def table(folder: Path, commits: int = 1) -> Snapshot:
    path = str(folder / "table")
    for number in range(commits):
        days = pa.array([number], pa.date32())
        write_deltalake(path, pa.table({"n": [number], "_date": days}), partition_by=["_date"], mode="append")
    return Snapshot(path=path, version=commits - 1)


def test_the_files_of_a_version_are_those_of_the_log_with_its_checkpoint(tmp_path: Path) -> None:
    made = table(tmp_path, 7)
    found = DeltaTable(made.path)
    before = made.files
    found.create_checkpoint()
    (Path(made.path) / "_delta_log" / f"{3:020d}.json").unlink()
    again = Snapshot(path=made.path, version=6)
    assert again.files == before and len(before) == 7 and again.types == {"n": "long", "_date": "date"}
    with pytest.raises(Unsure, match="not read to its end"):
        _ = Snapshot(path=made.path, version=5).files


def test_the_files_of_an_entry_with_other_ends_of_lines_in_a_text_are_found(tmp_path: Path) -> None:
    path, days = str(tmp_path / "table"), pa.array([0], pa.date32())
    write_deltalake(path, pa.table({"name": ["\x85\u2028\u2029"], "_date": days}), partition_by=["_date"])
    (file,) = Snapshot(path=path, version=0).files
    assert (Path(path) / file).is_file()


def test_two_readers_that_disagree_about_the_files_are_not_believed(tmp_path: Path) -> None:
    made = table(tmp_path)
    files = {**made.files, "_date=1970-01-01/more.parquet": "1970-01-01"}
    doubted = Snapshot(path=made.path, version=0)
    doubted.__dict__["files"] = files
    with pytest.raises(Unsure, match="two readers"):
        _ = doubted.types


@pytest.mark.parametrize("column", [pa.array([1.7]), pa.array([1], pa.int32()), pa.array(["1"]), None])
def test_any_file_with_a_column_of_another_type_is_spark_s(tmp_path: Path, column: pa.Array | None) -> None:
    path, days = str(tmp_path / "table"), pa.array([0], pa.date32())
    for at in range(2):
        rows = {"n": pa.array([at]), "at": pa.array([at], pa.timestamp("us", "UTC")), "_date": days}
        write_deltalake(path, pa.table(rows), partition_by=["_date"], mode="append")
    made = Snapshot(path=path, version=1)
    with duckdb.connect() as connection:
        found = connection.execute(made.read(connection, ["n"], "at", [(0, 1)])).fetchall()
        assert found == [(0,), (1,)]
        file = Path(path) / list(made.files)[-1]
        rows = pq.ParquetFile(file).read().drop(["n"])
        pq.write_table(rows if column is None else rows.append_column("n", column), file)
        with pytest.raises(duckdb.Error if column is None else Unsure, match=r"other types|not found"):
            made.read(connection, ["n"], "at", [(0, 1)])


def test_a_file_with_a_deletion_vector_is_spark_s(tmp_path: Path) -> None:
    made = table(tmp_path)
    entry = Path(made.path) / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = {"storageType": "u"}
    entry.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(Unsure, match="deletion vector"):
        _ = Snapshot(path=made.path, version=0).files
