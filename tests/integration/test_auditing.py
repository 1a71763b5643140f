"""A sealed window is looked at again: a row, a file, or the archive behind it that changed since is found and held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import world as worlds
from delta.tables import DeltaTable
from deltalake import DeltaTable as Table
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_negative_controls import states
from test_partial import served, start_of, tally
from world import MINUTE, T0, World

from tally.base.duration import from_millis, iso
from tally.base.settings import settings
from tally.control import audits, incidents, seals
from tally.jobs.archive import archive
from tally.jobs.reconcile import reconcile as reconciled
from tally.reconcile.audit.doubted import CAUSE
from tally.reconcile.audit.sealed_windows import audit, rolling

DAY = 24 * 60 * MINUTE


@pytest.fixture(
    scope="module", params=["tumbling", *(pytest.param(one, marks=pytest.mark.long) for one in ("session", "join"))]
)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def world(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[World]:
    """Both layers over an hour, every closed window sealed."""
    with pytest.MonkeyPatch.context() as patch:
        made = worlds.make(tmp_path_factory.mktemp("audit"), f"audit.{name}.", broker, patch, [name])
        made.produce(worlds.story(23, 120, made.prefix) + worlds.flush(made.prefix, after=DAY))
        made.produce(worlds.flush(made.prefix, after=2 * DAY))
        made.stream()
        made.batch(name)
        assert reconciled(name, None, None).verdict.word == "reconciled"
        yield made


def test_what_was_sealed_passes(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = [slot for slot, state in states(world, name).items() if state == "sealed"]
    whole = audit(name, deep=True)
    assert whole.passed and (whole.windows, whole.stated_again) == (len(sealed), len(sealed))
    monkeypatch.setenv("TALLY_AUDIT_WITHIN", "3 days")
    part = rolling(name)
    assert part.passed and part.windows == -(-len(sealed) // 3)
    assert not incidents.opened(name)


def test_a_row_changed_after_its_seal_is_held_by_a_plain_reconciliation(
    world: World, name: str, spark: SparkSession
) -> None:
    table = DeltaTable.forPath(spark, world.path("batch", name))
    bad = start_of(next(row for row in served(name) if row["state"] == "sealed"))
    slot = world.pipeline(name).slot(bad)
    table.update(F.unix_millis("window_start") == bad, {"total": F.lit(7777.0)})
    assert {row["state"] for row in served(name) if start_of(row) == bad} == {"sealed"}, "nobody has looked yet"
    code, found = tally("reconcile", name)
    assert (code, found["verdict"], found["held"]) == (1, "held", 1)
    assert {row["state"] for row in served(name) if start_of(row) == bad} == {"held"}
    told = {row.cause: row for row in incidents.opened(name)}[CAUSE]
    assert iso(from_millis(slot)) in told.evidence and f"tally backfill {name} --from" in told.cure
    assert [s for s, state in states(world, name).items() if state == "held"] == [slot]
    assert not audit(name).passed, "until it is mended the answer stays no"
    mend(world, name)


def test_a_compaction_is_nobodys_change(world: World, name: str, spark: SparkSession) -> None:
    spark.sql(f"OPTIMIZE delta.`{world.path('batch', name)}`")
    assert reconciled(name, None, None).compared.windows == 0
    assert set(states(world, name).values()) == {"sealed"}
    version = world.pipeline(name).version
    assert audits.place(name, version).seen_version == Table(world.path("batch", name)).version()


def test_a_file_that_was_changed_in_place_is_held_by_the_audit(world: World, name: str, spark: SparkSession) -> None:
    paths = [file.removeprefix("file://") for file in Table(world.path("batch", name)).file_uris()]
    wanted = max(paths, key=lambda path: Path(path).stat().st_size)
    rows = spark.read.parquet(wanted).toPandas()
    rows["total"] += 1.0
    rows.to_parquet(wanted, index=False, coerce_timestamps="us", use_deprecated_int96_timestamps=False)
    Path(wanted).with_name(f".{Path(wanted).name}.crc").unlink(missing_ok=True)
    assert reconciled(name, None, None).compared.windows == 0, "it made no commit"
    code, (found,) = tally("audit", name)
    assert (code, found["verdict"]) == (1, "held") and found["held"] > 0
    assert {one["what"] for one in found["failed"]} == {"the batch table's rows are not those that were sealed"}
    mend(world, name)


def test_a_file_that_is_gone_holds_its_day_and_no_other(world: World, name: str) -> None:
    days = {file.split("_date=")[1].split("/")[0] for file in Table(world.path("batch", name)).file_uris()}
    day = iso(from_millis(T0))[:10]
    assert day in days
    for file in Table(world.path("batch", name)).file_uris():
        if f"_date={day}" in file:
            Path(file.removeprefix("file://")).unlink()
    found = audit(name)
    assert not found.passed and {fault for fault, _ in found.failed()} == {"the batch table's rows cannot be read"}
    held = [slot for slot, state in states(world, name).items() if state == "held"]
    assert {iso(from_millis(slot))[:10] for slot in held} == {day} and found.waiting == len(held) < found.windows
    Table(world.path("batch", name)).repair()  # no restatement can read what is gone
    mend(world, name)


def test_an_archive_that_lost_an_event_is_found_where_the_seal_is_stated_again(
    world: World, name: str, spark: SparkSession
) -> None:
    topic = world.topics(name)[0]
    archive = DeltaTable.forPath(spark, settings().table("archive", topic))
    version = Table(settings().table("archive", topic)).version()
    counted = min(row["window_start"] for row in served(name) if row["n"] > 0)
    first = archive.toDF().where(F.col("at") >= F.lit(counted).cast("timestamp")).orderBy("at").first()
    assert first is not None
    archive.delete((F.col("_partition") == first["_partition"]) & (F.col("_offset") == first["_offset"]))
    found = audit(name, deep=True)
    at = f"topic {topic}, partition {first['_partition']}, offsets [{first['_offset']}, {first['_offset'] + 1}): lost 1"
    told = " ".join(fault for fault, _ in found.failed())
    assert "the archive no longer gives the rows that were sealed" in told and at in told
    assert reconciled(name, None, None).verdict.word == "held", (
        "that both tables are equal proves nothing of the archive"
    )
    archive.restoreToVersion(version)
    mend(world, name)


def test_an_archive_file_that_is_gone_holds_the_windows_of_its_hours(world: World, name: str, tmp_path: Path) -> None:
    folder = Path(settings().table("archive", world.topics(name)[0]), f"_date={iso(from_millis(T0))[:10]}")
    folder.rename(tmp_path / "away")
    found = audit(name, deep=True)
    (tmp_path / "away").rename(folder)
    told = {fault for fault, _ in found.failed()}
    assert told and all("cannot be read" in fault for fault in told)
    assert 0 < found.waiting < found.windows, "the other days are sound"
    mend(world, name)


def test_events_that_came_since_a_seal_are_no_fault_of_it(world: World, name: str) -> None:
    body, event = worlds.order(9_999, T0 + 2 * MINUTE, 3, 1, 5.0)
    suffix = world.topics(name)[0]
    world.produce([worlds.Record(suffix, 0, T0 + 3 * DAY, body, event)])
    world.stream()
    for topic in world.pipeline(name).reads:
        archive(topic.name)
    assert audit(name, deep=True).passed
    assert set(states(world, name).values()) == {"sealed"}


def mend(world: World, name: str) -> None:
    """The cure that the incident names: state again, compare, seal; the next revision, and the incident is over."""
    before = {seal.slot_start: seal for seal in seals.read(name, world.pipeline(name).version)}
    held = [slot for slot, seal in before.items() if seal.state == "held"]
    world.batch(name)
    assert reconciled(name, None, None).verdict.word == "reconciled"
    after = {seal.slot_start: seal for seal in seals.read(name, world.pipeline(name).version)}
    assert {seal.state for seal in after.values()} == {"sealed"} and not incidents.opened(name)
    assert all(after[slot].revision == before[slot].revision + 1 for slot in held)
    assert all(after[slot].revision == seal.revision for slot, seal in before.items() if slot not in held)
