"""A stream that has run for weeks: its Delta log is short, its ledger long, and all is answered as on the first day."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world as worlds
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from test_negative_controls import told
from world import MINUTE, T0, World

from tally.base.duration import from_millis
from tally.base.errors import AnswerIsNo
from tally.control import kept_ledger, leases, ledger
from tally.kinds import kind_of
from tally.lake import delta, tables
from tally.reconcile import cut as cuts
from tally.reconcile.compare import ranges_of
from tally.reconcile.replay import expected_rows
from tally.speed.upkeep import keeper, ledger_table, short_log
from tally.speed.upkeep.fold import FILES_WORTH_A_FOLD, newest_rows, trimmed_days
from tally.speed.upkeep.keeper import Keeper

HOUR = 3600


@pytest.fixture(scope="module", params=["tumbling_u", pytest.param("session", marks=pytest.mark.long)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[World]:
    """Some dozen micro-batches, folded beside them; the last window is open at the cut, and changes after it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "14")
        patch.setenv("TALLY_FOLD_AFTER_BATCHES", "4")
        made = worlds.make(tmp_path_factory.mktemp("weeks"), f"weeks.{name}.", broker, patch, [name])
        made.produce(worlds.story(21, 150, made.prefix, late=0.12))
        made.stream()
        made.batch(name)
        yield made


def age(path: str, seconds: float) -> None:
    """Make the entries of a table's log older."""
    for file in Path(path, "_delta_log").glob("*.*"):
        at = file.stat().st_mtime - seconds
        os.utime(file, (at, at))


def entries(path: str) -> int:
    return len(list(Path(path, "_delta_log").glob("*.json")))


def test_a_commit_leaves_one_file_in_the_log(world: World, name: str) -> None:
    """Each append lists the folder, so what lies in it is paid for by every micro-batch."""
    found = [file.name for file in Path(world.path("speed", name), "_delta_log").iterdir() if file.is_file()]
    assert sorted({name.split(".", 1)[1] for name in found if name[0].isdigit()}) == ["checkpoint.parquet", "json"]
    assert [name for name in found if not name[0].isdigit()] == ["_last_checkpoint"]


def test_folds_ran_and_the_table_says_what_the_oracle_says(world: World, spark: SparkSession, name: str) -> None:
    kinds = [one.words.get("kind") for one in delta.commits(world.path("speed", name))]
    assert kinds.count("micro-batch") == len(world.ledger(name)) > 12
    files = len(DeltaTable(world.path("speed", name)).file_uris())
    assert "fold" in kinds or files < FILES_WORTH_A_FOLD
    _, stream, _ = told(world, name)
    assert world.table("speed", name) == stream == newest_by_spark(spark, world, name)


def newest_by_spark(spark: SparkSession, world: World, name: str) -> Any:
    table = spark.read.format("delta").load(world.path("speed", name))
    found = newest_rows(table, world.pipeline(name)).collect()
    return {
        (int(row["window_start"].timestamp() * 1000), int(row["window_end"].timestamp() * 1000), row["shop"]): (
            row["n"],
            row["total"],
        )
        for row in found
    }


def test_only_the_needed_part_of_the_ledger_is_read(
    world: World, name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "MARGIN", 0)
    cut = cuts.find(world.pipeline(name), "window", filters=False)
    end = max(place[0] for place in world.table("batch", name)) + MINUTE
    lasts = [(end - minutes * MINUTE, end) for minutes in (5, 20, 300)]
    slots = [{start: start + MINUTE for start in range(*last, MINUTE)} for last in lasts]
    times = [kind_of(cut.pipeline).replay_reads(spark, ends, cut.stated.versions) for ends in slots]
    cuts_of = [cuts.reaching_back(cut, expected_rows.first_offsets(cut, of_topics)) for of_topics in times]
    assert all(one.last == cut.last == world.ledger(name)[-1] for one in cuts_of)
    numbers = [len(one.batches) for one in cuts_of]
    assert 1 <= numbers[0] < numbers[1] <= numbers[2] == len(world.ledger(name))
    assert world.compare_range(name, lasts[1])["unexplained"] == 0


def test_days_that_are_about_to_be_trimmed_are_still_read(world: World, name: str, spark: SparkSession) -> None:
    """Killed between the word and the deed of a trim: the rows are there, and nothing stands in for them."""
    pipeline = world.pipeline(name)
    ledger_table.will_trim(spark, pipeline, [from_millis(T0).date()])
    assert ledger_table.trimmed(pipeline) == [from_millis(T0).date()]
    assert trimmed_days(pipeline, DeltaTable(world.path("speed", name)).version()) == []


def test_where_the_log_no_longer_knows_the_cut_closed_windows_are_compared(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream is far ahead of the batch: its table is read as it is now, and gives no other answer."""
    _, stream, causes = told(world, name)
    cut_at = world.ledger(name)[-1].batch
    late = worlds.flush(world.prefix, after=200 * MINUTE)
    world.produce(late)
    world.stream(name)
    monkeypatch.setattr(short_log, "KEPT_MS", 0)
    pipeline = world.pipeline(name)
    cut = cuts.find(pipeline, "window", filters=False)
    assert (cut.last.batch, cut.travels) == (cut_at, False)
    assert cut.speed_version == DeltaTable(world.path("speed", name)).version()
    found = world.compare(name)
    assert found["unexplained"] == 0
    rows = world.table("batch", name).keys() | stream.keys()
    assert found["windows"] == sum(place[0] < cut.closed_starts for place in rows) < len(rows)
    assert 0 < found["events"]["late"] <= causes["late"]
    with pytest.raises(AnswerIsNo, match="were open when the batch last read Kafka") as refused:
        ranges_of(cut, (cut.closed_starts, cut.closed_starts + MINUTE))
    assert "tally batch" in (refused.value.cure or "")


def test_what_a_fold_raises_is_raised_after_the_next_micro_batch(
    world: World, name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("no space left on device")

    pipeline = world.pipeline(name)
    monkeypatch.setattr(keeper, "fold", broken)
    mine = Keeper(spark)
    lease = leases.take(f"speed/{name}")
    mine.after(pipeline, 3, lease)
    assert not mine.jobs, "not due"
    mine.after(pipeline, 4, lease)
    deadline = time.monotonic() + 60
    while not mine.jobs[pipeline.name].done() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(OSError, match="no space"):
        mine.after(pipeline, 5, lease)
    mine.after(pipeline, 6, lease)
    mine.close()


def test_a_table_of_an_older_make_gets_the_short_log(
    world: World, name: str, spark: SparkSession, tmp_path: Path
) -> None:
    where = str(tmp_path / "older")
    spark.sql(f"CREATE TABLE delta.`{where}` (a INT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '100')")
    tables.set_properties(spark, where, short_log.PROPERTIES)
    found = DeltaTable(where)
    assert short_log.PROPERTIES.items() <= found.metadata().configuration.items()
    tables.set_properties(spark, where, short_log.PROPERTIES)
    assert DeltaTable(where).version() == found.version()


def test_an_old_log_is_dropped_and_the_ledger_is_made_again_from_what_was_kept(
    world: World, name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline, path = world.pipeline(name), world.path("speed", name)
    before, rows = world.ledger(name), world.table("speed", name)
    stream = ledger_table.stream_of(pipeline)  # its topic's, where it shares that
    there = ledger.read(stream.name, stream.version)
    assert len(there) == len(before)
    monkeypatch.setattr(keeper, "COPY_AFTER_MS", 0)
    age(path, 2 * HOUR)
    keeper.tidy(spark, pipeline, lambda: None)
    assert entries(path) <= 2, "the newest commit, and perhaps a fold"
    assert world.table("speed", name) == rows == newest_by_spark(spark, world, name)
    assert kept_ledger.entries(stream) == there
    keeper.tidy(spark, pipeline, lambda: None)
    assert kept_ledger.entries(stream) == there, "nothing is kept twice"
    monkeypatch.setenv("TALLY_CONTROL", f"sqlite:///{tmp_path / 'new.db'}")
    assert world.ledger(name) == []
    assert ledger_table.repair(pipeline) == len(before)
    assert world.ledger(name) == before
