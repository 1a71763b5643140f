"""A pipeline's part in a topic's stream: the newest rows that it writes are the function's over all events so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from parts.declared import EVENTS, of
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tally.base.errors import NotAgain
from tally.catalog.spec import Pipeline
from tally.control.leases import Lease
from tally.kinds import kind_of
from tally.parts import Evaluation, Function, Split
from tally.speed import commit
from tally.speed.checkpoint import Planned
from tally.speed.commit import Target
from tally.speed.progress import CALM_SECONDS
from tally.speed.running_query import RunningQuery
from tally.speed.shared import member
from tally.speed.shared.events import Judged
from tally.speed.shared.inbox import packed, unpacked
from tally.speed.shared.member import Member
from tally.speed.shared.reading import Reading

T0 = datetime(2026, 11, 7, 0, 7, tzinfo=UTC)
Event = dict[str, Any]


class Alone:
    """Stands for the stream."""

    query = None
    motion: Any = None
    members: ClassVar[list[Member]] = []
    over = False

    def exception(self) -> None:
        return None

    def leave(self, _: Member) -> None:
        pass


def frame_of(spark: SparkSession, events: Sequence[Event]) -> DataFrame:
    schema = StructType.fromDDL(EVENTS.ddl)
    return spark.createDataFrame([tuple(one.get(field.name) for field in schema.fields) for one in events], schema)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[pa.Table]:
    """What is appended to the table, micro-batch by micro-batch."""
    rows: list[pa.Table] = []
    monkeypatch.setattr(member, "DeltaTable", lambda _: None)
    monkeypatch.setattr(commit, "append_arrow", lambda flat, *_: rows.append(flat))
    return rows


def newest_and_direct(
    spark: SparkSession,
    declared: Pipeline,
    batches: Sequence[Sequence[Event]],
    written: list[pa.Table],
    *,
    here: bool = False,
) -> tuple[list[str], list[str]]:
    """The newest row of each group that a member wrote, each total once through the inbox; and the function's own."""
    lease = Lease(name="speed/p/v1", epoch=1, sure=True)
    target = Target(spark=spark, pipeline=declared, generation=1, lease=lease)
    reading = Reading(spark, EVENTS)
    one = Member(Alone(), target, Function(spark, declared), lambda _: None, reading.shape)
    plan = Planned(batch=0, ranges={}, late_watermark=0, watermark=0)
    for batch in batches:
        totals = one.totals(judged(reading, frame_of(spark, batch), len(batch), here=here), 0, lambda: spark)
        one.take(spark, unpacked(packed(totals)), plan, 0)
        assert one.error is None
    keys, newest = ("window_start", "window_end", *declared.key), dict[str, str]()
    for row in (row for rows in written for row in rows.to_pylist()):
        newest[repr([row[name] for name in keys])] = repr(row)
    kind = kind_of(declared)
    (given,) = kind.bounded([frame_of(spark, [event for batch in batches for event in batch])])
    return sorted(newest.values()), sorted(map(repr, kind.flattened(declared.function(given)).toArrow().to_pylist()))


def judged(reading: Reading, frame: DataFrame, count: int, *, here: bool) -> Judged:
    """Events in this process, or as Spark's plans alone find them."""
    events = frame.toArrow() if here else None
    return Judged(frame=lambda: reading.shaped.leaf(frame), offsets=count, seen={}, events=events)


def event(number: int, **values: Any) -> Event:
    return {"id": number, "zone": number % 2, "at": T0 + timedelta(seconds=number), **values}


def counted(*groups: Any) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.where("zone >= 0").groupBy(*groups).agg(F.count("*").alias("n"), F.max("id").alias("m"))


@pytest.mark.parametrize("by_spark", [False, True], ids=["here", "by Spark"])
def test_a_micro_batch_that_changes_no_group_is_taken_too(
    spark: SparkSession, written: list[pa.Table], monkeypatch: pytest.MonkeyPatch, by_spark: bool
) -> None:
    if by_spark:
        monkeypatch.setattr(Split, "mergeable", False)
        monkeypatch.setattr(Evaluation, "of", lambda *_: None)
    batches = [[event(1), event(2)], [], [event(3, zone=None)], [event(4)]]
    newest, direct = newest_and_direct(spark, of(counted("window", "zone")), batches, written, here=not by_spark)
    assert newest == direct and [rows.num_rows for rows in written] == [2, 0, 0, 1]


@pytest.mark.parametrize(
    "span",
    [
        lambda: F.struct(F.col("at").alias("start"), F.lit(None).cast("timestamp").alias("end")),
        lambda: F.window("at", "10 seconds"),
    ],
    ids=["a struct of times", "another window"],
)
def test_a_key_that_looks_like_the_window_is_none(
    spark: SparkSession, written: list[pa.Table], span: Callable[[], Column]
) -> None:
    declared = of(counted(span().alias("span"), "window"), "span")
    batches = [[event(1), event(2)], [event(2), event(40)], [event(70)]]
    newest, direct = newest_and_direct(spark, declared, batches, written)
    assert newest == direct


def test_of_too_many_groups_in_all_the_pipeline_with_the_most_is_the_one_that_ends(
    spark: SparkSession, written: list[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, batches = of(counted("window", "zone")), [[event(1), event(2)], [event(61)]]
    monkeypatch.setenv("TALLY_OPEN_GROUPS_IN_ALL", "5")
    monkeypatch.setattr(Alone, "members", [SimpleNamespace(open=range(held)) for held in (1, 1)])
    newest_and_direct(spark, declared, batches, written)
    monkeypatch.setattr(Alone, "members", [SimpleNamespace(open=range(4))])
    newest_and_direct(spark, declared, batches, written)  # the other one has more of the seven
    monkeypatch.setattr(Alone, "members", [SimpleNamespace(open=range(2)), SimpleNamespace(open=range(1))])
    with pytest.raises(NotAgain, match="hold 3 groups, the most of the 6 of all pipelines") as refused:
        newest_and_direct(spark, declared, batches, written)
    assert refused.value.field == "TALLY_OPEN_GROUPS_IN_ALL"


def test_more_open_groups_than_the_driver_has_room_for_end_its_part_and_say_the_way_out(
    spark: SparkSession, written: list[pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLY_OPEN_GROUPS", "2")
    declared = of(counted("window", "zone"))
    with pytest.raises(NotAgain, match="hold 3 groups, more than the 2") as refused:
        newest_and_direct(spark, declared, [[event(1), event(2)], [event(61)], [event(62)]], written)
    assert "tally rebuild rows --path own, tally resume rows: its next generation has a query" in str(
        refused.value.cure
    )
    assert [rows.num_rows for rows in written] == [2, 1], "what was taken is in the table"
    lease = Lease(name="speed/p/v1", epoch=1, sure=True)
    target, reading = Target(spark=spark, pipeline=declared, generation=1, lease=lease), Reading(spark, EVENTS)
    one = Member(Alone(), target, Function(spark, declared), lambda _: None, reading.shape)
    found = judged(reading, frame_of(spark, [event(1), event(2), event(61)]), 3, here=True)
    with pytest.raises(NotAgain):
        one.restore([one.totals(found, 0, lambda: spark)], 0)


def test_it_gets_on_as_the_stream_does_that_it_is_part_of(spark: SparkSession, written: list[pa.Table]) -> None:
    declared, stream = of(counted("window", "zone")), Alone()
    target = Target(spark=spark, pipeline=declared, generation=1, lease=Lease(name="speed/p/v1", epoch=1, sure=True))
    shape = Reading(spark, EVENTS).shape
    one = Member(stream, target, Function(spark, declared), lambda _: None, shape)
    assert (one.waits, one.stuck, one.calm) == (False, False, False)
    stream.motion = SimpleNamespace(waits=True, stuck=False)
    assert (one.waits, one.stuck, one.calm) == (True, False, False)
    one.began_at -= CALM_SECONDS + 1
    assert one.calm
    stream.motion = SimpleNamespace(waits=False, stuck=True)
    assert (one.waits, one.stuck, one.calm) == (False, True, False)
    one.entering = threading.Thread()
    assert not one.stuck


def test_a_part_in_a_stream_is_looked_at_with_the_stream(spark: SparkSession, written: list[pa.Table]) -> None:
    declared = of(counted("window", "zone"))
    target = Target(spark=spark, pipeline=declared, generation=1, lease=Lease(name="speed/p/v1", epoch=1, sure=True))
    one = Member(Alone(), target, Function(spark, declared), lambda _: None, Reading(spark, EVENTS).shape)
    running = RunningQuery(one, declared, spark)
    running.update()
    assert running.motion is one and running.stuck() is None
