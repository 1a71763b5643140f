"""Each thing that can go wrong with a number is done on purpose: it is found, named, and its window is held."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oracle
import pytest
import world as worlds
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from world import World

from tally.base.duration import from_millis, iso
from tally.base.errors import AnswerIsNo
from tally.control import incidents, seals
from tally.reconcile.judge import STREAM_FAULTS
from tally.speed import checkpoint
from tally.speed.start import agreement, stored_state

NAME = "tumbling_u"
Place = tuple[int, int, int]
Harm = Callable[[DeltaTable, Any], None]


@pytest.fixture(scope="module", params=worlds.PATHS)
def world(
    request: pytest.FixtureRequest, spark: SparkSession, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A clean pipeline, both layers done, with late events and second copies in it; its stream on either path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MAX_OFFSETS_PER_TRIGGER", "40")
        patch.setenv("TALLY_SHARED", worlds.PATHS[request.param])
        folder = tmp_path_factory.mktemp("control")
        made = worlds.make(folder, f"{folder.name}.", broker, patch, [NAME])
        made.produce(worlds.story(7, 160, made.prefix, late=0.15) + worlds.flush(made.prefix))
        made.stream()
        made.batch(NAME)
        assert made.path_of(NAME) == request.param
        yield made


def told(world: World, name: str = NAME) -> tuple[oracle.Rows, oracle.Rows, dict[str, int]]:
    """What the batch and the stream must hold, and the events between them by cause."""
    shape, truth = worlds.shape_of(name), world.truth(name)
    out = world.told(name)
    return oracle.batch_rows(shape, truth), out.rows, dict(oracle.causes(shape, truth, out))


def places(world: World) -> tuple[list[Place], list[Place]]:
    """Windows and keys where both layers agree, one a window, and those where a late event lies between them."""
    batch, stream, _ = told(world)
    agreed = {place[0]: place for place, row in sorted(batch.items()) if stream.get(place) == row and row[0] > 1}
    late = {place[0]: place for place, row in sorted(batch.items()) if place in stream and stream[place] != row}
    return [place for start, place in agreed.items() if start not in late], list(late.values())


def reconcile(world: World, name: str = NAME) -> dict[str, Any]:
    """Compare as the tables now are, judge and seal."""
    from tally.reconcile.judge import judge
    from tally.reconcile.seal import seal

    found = world.compare(name)
    judged = judge(found["id"])
    seal(found["id"])
    return {**found, "verdict": judged.verdict}


def states(world: World, name: str = NAME) -> dict[int, str]:
    return {seal.slot_start: seal.state for seal in seals.read(name, world.pipeline(name).version)}


def here(place: Place) -> Any:
    start, _, key = place
    return (F.unix_millis("window_start") == start) & (F.col("shop") == key)


def adding(count: int, amount: float) -> Harm:
    def act(table: DeltaTable, place: Place) -> None:
        table.update(here(place), {"n": F.col("n") + count, "total": F.col("total") + amount})

    return act


def delete_row(table: DeltaTable, place: Place) -> None:
    table.delete(here(place))


def add_row(table: DeltaTable, place: Place) -> None:
    rows: DataFrame = table.toDF().where(here(place)).limit(1).withColumn("shop", F.lit(99))
    rows.write.format("delta").mode("append").save(table.detail().collect()[0]["location"])


HARMS: dict[str, Harm] = {
    "an event's part is gone": adding(-1, -25.0),
    "an event counts twice": adding(1, 25.0),
    "a value is off by a cent": adding(0, 0.01),
    "a row is gone": delete_row,
    "a row is there that nothing made": add_row,
}


def test_a_clean_run_raises_no_alarm(world: World) -> None:
    batch, stream, causes = told(world)
    found = reconcile(world)
    assert (found["unexplained"], found["verdict"]) == (0, "reconciled")
    assert found["events"] == causes and causes["late"] > 3
    assert found["different"] == sum(batch.get(p) != stream.get(p) for p in batch.keys() | stream.keys())
    # The far event that closes all others stands in a window of its own, still open.
    last = max(start for start, _, _ in batch)
    sealed = states(world)
    assert set(sealed.values()) == {"sealed"}
    assert {start for start, _, _ in batch} - set(sealed) == {last}


@pytest.mark.parametrize("layer", ["speed", pytest.param("batch", marks=pytest.mark.long)])
def test_one_cent_is_found_unexplained_and_held(world: World, spark: SparkSession, layer: str) -> None:
    """Also where nothing else differs that nobody explains."""
    check_held(world, spark, {places(world)[0][0]: ("a value is off by a cent", layer)})


def test_harm_of_every_kind_is_found_unexplained_and_held(world: World, spark: SparkSession) -> None:
    """At once, each in a window of its own: in either layer, and where a late event explains some of a row."""
    agreed, late = places(world)
    cent = "a value is off by a cent"
    kinds = [*((harm, "speed") for harm in HARMS), (cent, "batch")]
    where_late = [("an event's part is gone", "speed"), (cent, "speed"), (cent, "batch")]
    harms = {**dict(zip(agreed, kinds, strict=False)), **dict(zip(late, where_late, strict=False))}
    assert len(harms) == len(kinds) + len(where_late)
    check_held(world, spark, harms)


def check_held(world: World, spark: SparkSession, harms: dict[Place, tuple[str, str]]) -> None:
    """Harm each place of a layer: each is a row that nothing explains, and its window is held, and no other."""
    tables = {layer: DeltaTable.forPath(spark, world.path(layer, NAME)) for layer in ("speed", "batch")}
    before = {layer: table.history(1).collect()[0]["version"] for layer, table in tables.items()}
    try:
        for place, (harm, layer) in harms.items():
            HARMS[harm](tables[layer], place)
        found = reconcile(world)
    finally:
        for layer in {layer for _, layer in harms.values()}:
            tables[layer].restoreToVersion(before[layer])
    starts = sorted(start for start, _, _ in harms)
    assert (found["unexplained"], found["verdict"]) == (len(harms), "held")
    rows = [row for row in found["rows"] if row["cause"] == "unexplained"]
    assert sorted(row["window_start"] for row in rows) == [iso(from_millis(start)) for start in starts]
    assert [start for start, state in sorted(states(world).items()) if state == "held"] == starts


def test_mended_and_stated_again_it_reconciles_again(world: World) -> None:
    """What others did to a sealed row is not taken back by doing it again: the batch states the window once more."""
    assert [state for state in states(world).values() if state == "held"]
    assert reconcile(world)["verdict"] == "held"
    world.batch(NAME)
    assert reconcile(world)["verdict"] == "reconciled"
    assert "held" not in states(world).values()


def shifted(world: World, name: str, by: int) -> dict[str, int]:
    """Move the end of the last micro-batch in the checkpoint's log; where the stream goes on from, per partition."""
    pipeline = world.pipeline(name)
    root = checkpoint.root(name, pipeline.version, 1)
    path = Path(root, "offsets", str(checkpoint.newest_batch(root)))
    *head, last = path.read_text().splitlines()
    ends = json.loads(last)[pipeline.reads[0].name]
    moved = {partition: offset + by for partition, offset in ends.items()}
    path.write_text("\n".join([*head, json.dumps({pipeline.reads[0].name: moved})]))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return {partition: int(offset) for partition, offset in ends.items()}


@pytest.mark.parametrize("path", worlds.DEFAULT_FIRST)
@pytest.mark.parametrize(("by", "cause"), [(3, "skipped"), (-3, "applied_twice")])
def test_offsets_that_the_stream_skipped_or_applied_twice_are_named_and_counted(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, by: int, cause: str
) -> None:
    name = "tumbling_p"
    monkeypatch.setenv("TALLY_SHARED", worlds.PATHS[path])
    made = worlds.make(tmp_path, f"{cause}.{path}.", broker, monkeypatch, [name])
    records = [r for r in worlds.story(5, 80, made.prefix, late=0, again=0) if r.topic == f"{made.prefix}orders"]
    made.produce(records[:50])
    made.stream()
    ends = shifted(made, name, by)
    with pytest.raises(AnswerIsNo, match="another history"):
        agreement.ensure(made.pipeline(name))
    monkeypatch.setattr(agreement, "ensure", stored_state.read)  # so that a stream goes on which would refuse to
    made.produce(records[50:] + worlds.flush(made.prefix))
    made.stream()
    made.batch(name)
    found = reconcile(made, name)
    touched = [
        event for event in made.truth(name)[0] if min(0, by) <= event.offset - ends[str(event.partition)] < max(0, by)
    ]
    assert found["events"].get(cause) == len(touched) > 0
    assert found["unexplained"] == 0
    shape = worlds.shape_of(name)
    expected = {(w[0], e.key) for e in touched for w in shape.windows(e.time)}
    named = {(row["window_start"], row["shop"]) for row in found["rows"] if cause in row["cause"].split("+")}
    assert named == {(iso(from_millis(start)), key) for start, key in expected}
    assert STREAM_FAULTS[cause] in {incident.cause for incident in incidents.opened(name)}
