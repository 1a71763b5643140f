"""The control store's copy of a topic's beginning follows the archive's words. Without Spark: no record was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from definitions import write
from deltalake import CommitProperties, write_deltalake

from tally import lake
from tally.catalog.load import catalogue
from tally.control import beginnings, seals
from tally.settings import settings
from tally.sources import beginning

SAID = {"at": 7, "partitions": {"1": {"first": 5, "to": 5, "broker_time": 3, "append_time": False}}}


@pytest.fixture(autouse=True)
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive whose only commit says that the records before offset 5 of partition 1 were gone."""
    monkeypatch.setenv("TALLY_HOME", str(tmp_path))
    monkeypatch.delenv("TALLY_CONTROL", raising=False)
    monkeypatch.setenv("TALLY_CATALOG", str(write(tmp_path / "catalogue")))
    words = CommitProperties(custom_metadata={"userMetadata": lake.words("ingest", beginning=SAID)})
    rows = pyarrow.table({"id": [1]})
    write_deltalake(settings().table("archive", "rides"), rows, commit_properties=words)


@pytest.mark.parametrize(
    "changed",
    [None, (7, {}), (8, SAID["partitions"]), (7, {"1": {"first": 1, "to": 5, "broker_time": 3, "append_time": False}})],
)
def test_a_copy_that_is_lost_or_changed_is_made_again(changed: Any) -> None:
    if changed is not None:
        at, partitions = changed
        beginnings.keep("rides", at, {int(number): {**found, "newest": None} for number, found in partitions.items()})
    beginning.note(None, catalogue().topic("rides"))  # type: ignore[arg-type]
    assert beginnings.known("rides") == (7, SAID["partitions"])


def test_a_seal_on_a_window_before_the_beginning_is_taken_back_also_where_the_copy_is_right() -> None:
    beginning.note(None, catalogue().topic("rides"))  # type: ignore[arg-type]
    demand = catalogue().pipeline("demand")
    forged = seals.Seal(
        pipeline="demand", version=demand.version, slot_start=0, slot_end=60_000, state="sealed", revision=1,
        digest="d", rows=1, reconciliation=1, changed_at=0,
    )  # fmt: skip
    seals.write([forged])
    beginning.note(None, catalogue().topic("rides"))  # type: ignore[arg-type]
    assert [seal.state for seal in seals.read("demand", demand.version)] == ["partial"]
