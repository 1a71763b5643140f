"""Rows that are gone from archive or quarantine are counted by their logs, of no matter when. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tally.base.settings import settings
from tally.catalog.declare import pipeline, topic, tumbling
from tally.control import incidents, manifests
from tally.lake import delta
from tally.reconcile.audit.kept import CAUSE, check

rides = topic("rides", schema="id BIGINT, at TIMESTAMP", event_time="at", lateness="10 minutes")


@pipeline(reads=rides, window=tumbling("1 minute"), key="id")
def demand(rides):  # type: ignore[no-untyped-def]
    return rides


def write(place: str, seq: int, count: int) -> None:
    counts: dict[str, Any] = {"archived": [[seq, count]], "quarantined": {}}
    plan = {"seq": seq, "era": 0, "ranges": {"0": [0, 1]}, "contract": "c", "gaps": 0, "counts": counts}
    words = CommitProperties(custom_metadata={"userMetadata": delta.words("ingest", **plan)})
    rows = pyarrow.table({"_ingest": [seq] * count, "at": range(count)})
    write_deltalake(settings().table(place, "rides"), rows, mode="append", commit_properties=words)


@pytest.fixture(autouse=True)
def ingested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ingests of three and two events, one record refused; of a third the quarantine alone is written so far."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    for seq, count in ((0, 3), (1, 2)):
        write("archive", seq, count)
        row = {"topic": "rides", "seq": seq, "ranges": {"0": [0, 1]}, "archived": count, "gaps": 0,
               "quarantined": {"empty": 1 - seq}, "delta_version": seq, "committed_at": 0}  # fmt: skip
        manifests.record([], [row])
    write("quarantine", 0, 1)
    write("quarantine", 2, 4)


def test_what_is_all_there_opens_nothing() -> None:
    assert check(demand) == [] and incidents.opened("demand") == []


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("archive", "archive/rides holds 4 rows of the 5 that ingests up to 1 wrote"),
        ("quarantine", "quarantine/rides holds 0 rows of the 1 that ingests up to 1 wrote"),
    ],
)
def test_a_row_that_is_gone_is_told_until_it_is_back(place: str, says: str) -> None:
    table = DeltaTable(settings().table(place, "rides"))
    whole = table.version()
    table.delete("_ingest = 0 AND at = 0")
    assert check(demand) == [says]
    (told,) = incidents.opened("demand")
    assert (told.cause, told.evidence, told.cure) == (CAUSE, says, "tally mend rides")
    table.restore(whole)
    assert check(demand) == [] and incidents.opened("demand") == []


def test_a_row_too_many_is_told() -> None:
    write_deltalake(settings().table("archive", "rides"), pyarrow.table({"_ingest": [1], "at": [1]}), mode="append")
    assert check(demand) == ["archive/rides holds 6 rows of the 5 that ingests up to 1 wrote"]
