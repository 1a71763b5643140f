"""Windows whose speed rows were trimmed are compared again by what their seal recorded, or held."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import oracle
import pytest
import world as worlds
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from test_negative_controls import reconcile, states, told
from world import MINUTE, T0, World

from tally.base.errors import AnswerIsNo
from tally.base.settings import settings
from tally.control import leases, seals
from tally.reconcile.audit.sealed_windows import audit
from tally.speed.upkeep import ledger_table
from tally.speed.upkeep.fold import trim

TRIMMED_DAY = datetime.fromtimestamp(T0 / 1000, UTC).date()


def mine() -> None:
    """The lease is still held."""


def taken_over() -> None:
    raise leases.Fenced("another driver writes this table now", field="speed", cure="leave it the stream")


@pytest.fixture(scope="module", params=["tumbling_u", pytest.param("session", marks=pytest.mark.long)])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def trimmed(spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[World]:
    """A pipeline sealed for a whole day, and then trimmed of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "60")
        made = worlds.make(tmp_path_factory.mktemp("trimmed"), f"trimmed.{name}.", broker, patch, [name])
        made.produce(worlds.story(11, 120, made.prefix) + worlds.flush(made.prefix, after=30 * 60 * MINUTE))
        made.stream()
        made.batch(name)
        assert reconcile(made, name)["verdict"] == "reconciled"
        assert trim(spark, made.pipeline(name), mine) == 0, "sealed a moment ago"
        patch.setenv("TALLY_TRIM_AFTER", "0 seconds")
        before = made.table("speed", name)
        with pytest.raises(leases.Fenced):
            trim(spark, made.pipeline(name), taken_over)
        assert (made.table("speed", name), ledger_table.trimmed(made.pipeline(name))) == (before, [])
        assert trim(spark, made.pipeline(name), mine) == 1
        left = made.table("speed", name)
        assert left == {place: row for place, row in before.items() if place[0] >= T0 + 20 * 60 * MINUTE}
        assert ledger_table.trimmed(made.pipeline(name)) == [TRIMMED_DAY]
        assert trim(spark, made.pipeline(name), mine) == 0, "there is nothing left to trim"
        yield made


def test_restated_from_the_same_events_it_seals_again(trimmed: World, name: str) -> None:
    before = {seal.slot_start: (seal.digest, seal.rows) for seal in sealed(trimmed, name)}
    trimmed.batch(name)
    assert set(states(trimmed, name).values()) == {"unsealed"}
    found = reconcile(trimmed, name)
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
    assert {seal.slot_start: (seal.digest, seal.rows) for seal in sealed(trimmed, name)} == before


def test_an_event_that_comes_after_the_trim_is_explained_as_late(trimmed: World, name: str) -> None:
    batch, _, _ = told(trimmed, name)
    start = min(place[0] for place in batch)
    suffix = "_u" if name.endswith("_u") else ""
    body, event = worlds.order(5_000 + len(suffix), start + 1000, 1, 2, 77.0)
    now = T0 + 31 * 60 * MINUTE
    trimmed.produce([worlds.Record(f"{trimmed.prefix}orders{suffix}", 0, now, body, event)])
    trimmed.stream(name)
    trimmed.batch(name)
    found = reconcile(trimmed, name)
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
    _, _, causes = told(trimmed, name)
    assert found["events"] == causes, trimmed.ledger(name)
    assert trimmed.table("batch", name) == oracle.batch_rows(worlds.shape_of(name), trimmed.truth(name))
    assert set(states(trimmed, name).values()) == {"sealed"}


def test_an_archive_that_no_longer_gives_what_was_sealed_holds_the_window(
    trimmed: World, spark: SparkSession, name: str
) -> None:
    (topic,) = trimmed.topics(name)
    archive = DeltaTable.forPath(spark, settings().table("archive", topic))
    lost = archive.toDF().where(F.unix_millis("at") < T0 + 10 * MINUTE).orderBy("_partition", "_offset").first()
    assert lost is not None
    archive.delete((F.col("_partition") == lost["_partition"]) & (F.col("_offset") == lost["_offset"]))
    with pytest.raises(AnswerIsNo, match="lost 1") as refused:
        trimmed.batch(name)
    assert f"partition {lost['_partition']}, offsets [{lost['_offset']}, {lost['_offset'] + 1})" in str(refused.value)
    found = audit(name, deep=True)
    assert not found.passed
    held = [slot for slot, state in states(trimmed, name).items() if state == "held"]
    assert trimmed.pipeline(name).slot(int(lost["at"].timestamp() * 1000)) >= min(held)
    assert len(held) < len(states(trimmed, name)), "the others are sealed"


def sealed(world: World, name: str) -> list[seals.Seal]:
    return [seal for seal in seals.read(name, world.pipeline(name).version) if seal.state == "sealed"]
